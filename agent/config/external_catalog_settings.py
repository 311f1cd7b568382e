"""The file of `--external-catalogs`: which catalogs of others follow, and how they are reached.

Rule: whatever can be found wrong before a catalog is asked is found here, at the start. A value may come from the
environment or from a file; such values, and others that look like secrets, are never shown.
"""

import importlib.util
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agent.config.addresses import MemoryUrl, read_store_url
from agent.config.option_sources import InvalidSettings, Value
from protocol.limits import EXTERNAL_CATALOGS_MAX
from protocol.suggestions import nearest

NAMESPACE_DEFAULT = "lake"
_NEEDED = {"glue": "boto3", "hive": "thrift", "rest": "requests", "sql": "sqlalchemy"}
"""By type of catalog the module that PyIceberg needs for it."""
_DRIVERS = {"postgresql": "psycopg2", "postgresql+psycopg2": "psycopg2", "postgresql+psycopg": "psycopg"}
_PACKAGES = {
    "boto3": "pyiceberg[glue]",
    "psycopg": "psycopg[binary]",
    "psycopg2": "psycopg2-binary",
    "thrift": "pyiceberg[hive]",
}
"""The package that brings a module, where Penstock's own extra does not."""
EVERY_TOPIC = re.compile(".*")
_WITH_URI = ("hive", "rest", "sql")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_SECRET = re.compile(r"token|credential|secret|password|access-key|header", re.IGNORECASE)
"""Of names of properties."""
_DEFAULTS = {"sql": {"pool_pre_ping": "true"}}
"""The properties for PyIceberg where the file sets no others. A database may have closed a connection meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCatalogSettings:
    """`name` is the catalog's: a SQL catalog keeps its tables under it. `properties` are PyIceberg's, with `type`."""

    name: str
    namespace: tuple[str, ...] = (NAMESPACE_DEFAULT,)
    topics: re.Pattern[str] = EVERY_TOPIC
    """Topics follow whose whole names match."""
    properties: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts that are not to be shown."""


def read_external_catalogs(
    store_url: str, given: Mapping[str, Value], environment: Mapping[str, str]
) -> tuple[ExternalCatalogSettings, ...]:
    """The followers that `--external-catalogs` names. Raises `InvalidSettings`."""
    value = given.get("external-catalogs")
    if value is None:
        return ()
    assert isinstance(value, str)
    if isinstance(read_store_url(store_url), MemoryUrl):
        raise InvalidSettings("--external-catalogs: nobody else can read tables in a store in memory")
    path = Path(value).expanduser().absolute()
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"--external-catalogs {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"--external-catalogs {path} is not TOML: {error}") from error
    if not 0 < len(tables) <= EXTERNAL_CATALOGS_MAX:
        raise InvalidSettings(
            f"--external-catalogs {path} names {len(tables)} catalogs: it has a table [NAME] for each, up to "
            f"{EXTERNAL_CATALOGS_MAX} of them"
        )
    return tuple(_external_catalog(path, name, table, environment) for name, table in tables.items())


def _external_catalog(path: Path, name: str, table: object, environment: Mapping[str, str]) -> ExternalCatalogSettings:
    place = f"--external-catalogs {path}: [{name}]"
    if not isinstance(table, Mapping) or not _NAME.fullmatch(name):
        raise InvalidSettings(f"{place} is no table of a catalog: a name has letters, digits, _ and - alone")
    secrets: list[str] = []
    properties = {key: _value(f"{place} {key}", value, environment, secrets) for key, value in table.items()}
    namespace = tuple(properties.pop("namespace", NAMESPACE_DEFAULT).split("."))
    if not all(namespace):
        raise InvalidSettings(f"{place} namespace: levels are separated by single dots, as in raw.kafka")
    try:
        topics = re.compile(properties.pop("topics", EVERY_TOPIC.pattern))
    except re.error as error:
        raise InvalidSettings(f"{place} topics is no regular expression of Python's: {error}") from error
    kind = properties.get("type")
    if kind is None or kind not in _NEEDED:
        found = "is missing" if kind is None else f"{kind!r} is no catalog that can follow"
        raise InvalidSettings(f"{place} type {found}: it is one of {', '.join(_NEEDED)}{nearest(kind or '', _NEEDED)}")
    if kind in _WITH_URI and "uri" not in properties:
        raise InvalidSettings(f"{place} uri is missing: where a catalog of type {kind} is")
    uri = properties.get("uri", "")
    for module in ("pyiceberg", _NEEDED[kind], _DRIVERS.get(uri.partition("://")[0])):
        if module is not None and importlib.util.find_spec(module) is None:
            wanted = _PACKAGES.get(module, "penstock[external-catalogs]")
            raise InvalidSettings(f"{place} type {kind} needs the module {module}: pip install '{wanted}'")
    secrets += [value for key, value in properties.items() if _SECRET.search(key)]
    return ExternalCatalogSettings(
        name=name,
        namespace=namespace,
        topics=topics,
        properties={**_DEFAULTS.get(kind, {}), **properties},
        secrets=tuple(dict.fromkeys([*filter(None, secrets), *_passwords(uri)])),
    )


def _value(place: str, value: object, environment: Mapping[str, str], secrets: list[str]) -> str:
    """A property's value; one that is not written in the file itself joins the secrets."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case {"env": str(variable), **others} if not others:
            text = environment.get(variable)
            if not text:
                raise InvalidSettings(f"{place}: the environment has no {variable}, or it is empty")
        case {"file": str(name), **others} if not others:
            text = _first_line(place, Path(name).expanduser())
        case _:
            raise InvalidSettings(
                f'{place} must be a text, a number, true or false, {{ env = "VARIABLE" }} or {{ file = "/PATH" }}; '
                "quote keys that hold dots"
            )
    secrets.append(text)
    return text


def _first_line(place: str, path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InvalidSettings(f"{place}: {path} cannot be read: {error.strerror}") from error
    if not lines or not lines[0]:
        raise InvalidSettings(f"{place}: the first line of {path} is the value, and it is empty")
    return lines[0]


def _passwords(uri: str) -> Iterator[str]:
    """The password in a URI, as it stands there and as it is meant."""
    try:
        password = urlsplit(uri).password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)
