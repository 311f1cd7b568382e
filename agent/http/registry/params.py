"""Parameters of requests to the schema registry: bodies, names and numbers in paths, and flags.

Rule: a parameter that cannot be read, or that would be ignored, is rejected with a code of the API and a message.
Source: Confluent Schema Registry API 8.
"""

from collections.abc import Mapping

from starlette.requests import Request

from agent.http.registry.registry import INVALID_SCHEMA, LATEST, RegistryFailure, SchemaRequest
from coordinator.commands.registry import Compatibility, RegistryMode, SchemaReference, SchemaType
from protocol.decoding import Undecodable, decode_json_object
from protocol.limits import SCHEMA_BODY_BYTES_MAX, SUBJECT_CHARS_MAX

CONTENT_TYPES = frozenset(
    {
        "application/vnd.schemaregistry.v1+json",
        "application/vnd.schemaregistry+json",
        "application/json",
        "application/octet-stream",
    }
)
BAD_REQUEST, UNSUPPORTED_TYPE, TOO_LARGE = 400, 415, 413
INVALID_VERSION, INVALID_COMPATIBILITY, INVALID_MODE, INVALID_SUBJECT = 42202, 42203, 42204, 42208
DEFAULT_CONTEXT = ":.:"
NUMBER_DIGITS = 10
NUMBER_END = 1 << 31
UNSUPPORTED_FIELDS = ("metadata", "ruleSet", "rulesetToMerge", "schemaTagsToAdd", "schemaTagsToRemove")
"""Fields of a schema in Confluent's registry that this one cannot store."""
CONFIG_KNOWN = frozenset({"compatibility", "compatibilityLevel"})

Body = Mapping[str, object]


async def read_body(request: Request) -> Body:
    """The JSON object of the body. A web page cannot send these types to another origin without a CORS preflight."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in CONTENT_TYPES:
        raise RegistryFailure(UNSUPPORTED_TYPE, "Send Content-Type: application/vnd.schemaregistry.v1+json")
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > SCHEMA_BODY_BYTES_MAX:
            raise RegistryFailure(TOO_LARGE, f"The body exceeds {SCHEMA_BODY_BYTES_MAX} bytes.")
    try:
        return decode_json_object(data)
    except Undecodable as error:
        raise RegistryFailure(BAD_REQUEST, f"The body is not a JSON object: {error}") from error


def read_subject(name: str) -> str:
    """A subject's name as it is stored: without the default context, the only one."""
    subject = name.removeprefix(DEFAULT_CONTEXT)
    if subject.startswith(":."):
        raise RegistryFailure(
            INVALID_SUBJECT, f"Subject '{name}' is in a context, and only the default context exists."
        )
    if not 0 < len(subject) <= SUBJECT_CHARS_MAX or any(ord(letter) < 0x20 for letter in subject):
        message = f"a name has 1 to {SUBJECT_CHARS_MAX} characters and no control characters"
        raise RegistryFailure(
            INVALID_SUBJECT, f"The specified subject '{subject[:SUBJECT_CHARS_MAX]}' is not a name: {message}."
        )
    return subject


def read_version(text: str) -> int:
    """The number of a version, or `LATEST`."""
    if text in ("latest", str(LATEST)):
        return LATEST
    number = _number(text)
    if number is None or number == 0:
        raise RegistryFailure(
            INVALID_VERSION,
            f"The specified version '{text[:NUMBER_DIGITS]}' is not a valid version id. Allowed values are between "
            f'[1, 2^31-1] and the string "latest"',
        )
    return number


def read_id(text: str) -> int:
    """The id of a schema."""
    number = _number(text)
    if number is None:
        raise RegistryFailure(404, f"{text[:NUMBER_DIGITS]!r} is not the id of a schema.")
    return number


def _number(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or len(text) > NUMBER_DIGITS or int(text) >= NUMBER_END:
        return None
    return int(text)


def flag(request: Request, name: str) -> bool:
    """A flag of the query. Clients send True as well as true."""
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false", ""):
        raise RegistryFailure(BAD_REQUEST, f"{name} must be true or false.")
    return text == "true"


def page(request: Request, rows: list[object]) -> list[object]:
    """The first `limit` items (-1: all) from `offset` on."""
    offset, limit = _signed(request, "offset", 0), _signed(request, "limit", -1)
    return rows[max(0, offset) :] if limit < 0 else rows[max(0, offset) :][:limit]


def _signed(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    number = -1 if text == "-1" else _number(text)
    if number is None:
        raise RegistryFailure(BAD_REQUEST, f"{name} must be a whole number from -1 on.")
    return number


def schema_request(body: Body, *, is_normalized: bool) -> SchemaRequest:
    """The schema that a body holds."""
    for name in UNSUPPORTED_FIELDS:
        if body.get(name):
            raise RegistryFailure(INVALID_SCHEMA, f"{name} cannot be stored with a schema here: omit it.")
    text = body.get("schema")
    if not isinstance(text, str):
        raise RegistryFailure(INVALID_SCHEMA, "Empty schema" if text is None else "The schema is not a string.")
    schema_type = body.get("schemaType") or SchemaType.AVRO.name
    if schema_type not in SchemaType.__members__:
        raise RegistryFailure(INVALID_SCHEMA, f"Invalid schema type {str(schema_type)[:SUBJECT_CHARS_MAX]}")
    try:
        text.encode()
        references = _references(body.get("references"))
    except UnicodeEncodeError as error:
        raise RegistryFailure(
            INVALID_SCHEMA, "The schema holds half of a surrogate pair, which is not a character."
        ) from error
    return SchemaRequest(
        schema_type=SchemaType[str(schema_type)],
        text=text,
        references=references,
        is_normalized=is_normalized,
        schema_id=_chosen_number(body, "id"),
        version=_chosen_number(body, "version"),
    )


def _chosen_number(body: Body, name: str) -> int | None:
    """The number that the client chose for the schema; None for no choice, which 0 and -1 also mean."""
    number = body.get(name)
    if number is None or number in (0, -1):
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < NUMBER_END:
        raise RegistryFailure(INVALID_VERSION, f"{name} must be a number from 1 to 2^31-1.")
    return number


def _references(value: object) -> tuple[SchemaReference, ...]:
    rows = [] if value is None else value
    if not isinstance(rows, list):
        raise RegistryFailure(INVALID_SCHEMA, "references must be a list.")
    return tuple(map(_reference, rows))


def _reference(row: object) -> SchemaReference:
    if isinstance(row, dict):
        name, subject, version = row.get("name"), row.get("subject"), row.get("version")
        is_number = isinstance(version, int) and not isinstance(version, bool)
        if isinstance(name, str) and isinstance(subject, str) and isinstance(version, int) and is_number:
            name.encode()
            subject.encode()
            if version == LATEST or 0 < version < NUMBER_END:
                return SchemaReference(name=name, subject=read_subject(subject), version=version)
    raise RegistryFailure(INVALID_SCHEMA, "A reference must have a name, a subject and a version.")


def compatibility_of(body: Body) -> Compatibility:
    """The level that a body sets."""
    others = [name for name, value in body.items() if name not in CONFIG_KNOWN and value not in (None, False, "")]
    if others:
        raise RegistryFailure(INVALID_COMPATIBILITY, f"{others[0]} cannot be set here: omit it.")
    level = body.get("compatibility") or body.get("compatibilityLevel")
    if not isinstance(level, str) or level.upper() not in Compatibility.__members__:
        names = ", ".join(name.lower() for name in Compatibility.__members__)
        raise RegistryFailure(INVALID_COMPATIBILITY, f"Invalid compatibility level. Valid values are {names}")
    return Compatibility[level.upper()]


def mode_of(body: Body) -> RegistryMode:
    """The mode that a body sets."""
    mode = body.get("mode")
    if not isinstance(mode, str) or mode.upper() not in RegistryMode.__members__:
        names = ", ".join(RegistryMode.__members__)
        raise RegistryFailure(INVALID_MODE, f"Invalid mode. Valid values are {names}")
    return RegistryMode[mode.upper()]
