"""Errors of the HTTP port's own API, and the checks of bodies and queries that its routes share."""

from collections.abc import Mapping
from math import ceil

from starlette.requests import Request

from coordinator.state.state import ClusterState, TopicState
from protocol.decoding import Undecodable, decode_json_object
from protocol.limits import HTTP_BODY_BYTES_MAX, HTTP_ROWS_DEFAULT, HTTP_ROWS_MAX

NUMBER_DIGITS = 18
"""Longer numbers are rejected: Python raises another error for thousands of digits."""
SHOWN_CHARS_MAX = 40
TOPICS_REMEDY = 'send {"topics": ["orders"]}'


class ApiError(Exception):
    """An error response. `remedy` says what the caller should do."""

    def __init__(self, status: int, code: str, message: str, remedy: str, *, retry_after_s: float = 0.0) -> None:
        """`retry_after_s`: how long the client has to wait; 0 where waiting does not help, or it is not known."""
        super().__init__(message)
        self.headers = {"Retry-After": str(ceil(retry_after_s))} if retry_after_s else {}
        self.status = status
        self.code = code
        self.message = message
        self.remedy = remedy


def topic_names(body: Mapping[str, object]) -> list[str]:
    """The names in `topics`, each once."""
    names = body.get("topics")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ApiError(400, "bad_request", "topics must be a list of names", TOPICS_REMEDY)
    return list(dict.fromkeys(names))


def no_such_topic(name: str) -> ApiError:
    """The error for a topic that does not exist, or that the client may not know of."""
    return ApiError(404, "unknown_topic", f"there is no topic {name!r}", "list topics with penstock topics list")


def find_topic(state: ClusterState, name: str) -> TopicState:
    """The topic of that name. Raises `ApiError`."""
    topic_id = state.topic_ids.get(name)
    if topic_id is None:
        raise no_such_topic(name)
    return state.topics[topic_id]


async def read_json(request: Request, bytes_max: int) -> bytes:
    """The body, JSON by its type. Raises `ApiError`."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        # A page in somebody's browser cannot send this type to a port of the machine without asking first.
        raise ApiError(415, "bad_request", "the body must be JSON", "send Content-Type: application/json")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > bytes_max:
            raise ApiError(413, "too_large", f"the body exceeds {bytes_max} bytes", "name fewer topics")
    return bytes(body)


async def json_body(request: Request) -> dict[str, object]:
    """The JSON object of the body. Raises `ApiError`."""
    body = await read_json(request, HTTP_BODY_BYTES_MAX)
    try:
        return decode_json_object(body)
    except Undecodable as error:
        message = f"the body is not a JSON object: {error}"
        raise ApiError(400, "bad_request", message, TOPICS_REMEDY) from error


def query_text(request: Request, name: str) -> str:
    """The text in the query. Raises `ApiError` without one."""
    text = request.query_params.get(name, "")
    if not text:
        raise ApiError(400, "bad_request", f"{name} is missing", f"give {name}=")
    return text


def query_number(request: Request, name: str, range_end: str = "on") -> int | None:
    """The number in the query; None without one. `range_end` completes the range in the error message."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > NUMBER_DIGITS:
        message = f"{name}={text[:SHOWN_CHARS_MAX]} is not a whole number from 0 {range_end}"
        raise ApiError(400, "bad_request", message, f"give {name} as a whole number, or omit it")
    return int(text)


def query_limit(request: Request) -> int:
    """The count of rows that the query asks for, within its bounds."""
    limit = query_number(request, "limit", f"to {HTTP_ROWS_MAX}")
    return HTTP_ROWS_DEFAULT if limit is None else min(limit, HTTP_ROWS_MAX)
