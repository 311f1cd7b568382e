"""The file of `--external-catalogs`: the external catalogs, and how the agent connects to each.

Every fault that shows without a request to a catalog is found here, at the start. A value may come from the environment
or from a file; such values, and others that look like secrets, are never shown.
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
_MODULES = {"glue": "boto3", "hive": "thrift", "rest": "requests", "sql": "sqlalchemy"}
"""The module that PyIceberg needs for each type of catalog."""
_DRIVERS = {"postgresql": "psycopg2", "postgresql+psycopg2": "psycopg2", "postgresql+psycopg": "psycopg"}
_PACKAGES = {
    "boto3": "pyiceberg[glue]",
    "psycopg": "psycopg[binary]",
    "psycopg2": "psycopg2-binary",
    "thrift": "pyiceberg[hive]",
}
"""The package of a module, where Penstock's own extra does not have it."""
EVERY_TOPIC = re.compile(".*")
_WITH_URI = ("hive", "rest", "sql")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_SECRET = re.compile(r"token|credential|secret|password|access-key|header", re.IGNORECASE)
"""Names of properties whose values are secrets."""
_DEFAULTS = {"sql": {"pool_pre_ping": "true"}}
"""PyIceberg's properties where the file does not set them. A database may have closed an idle connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCatalogSettings:
    """One external catalog. A SQL catalog stores its tables under `name`. `properties` are PyIceberg's, with `type`."""

    name: str
    namespace: tuple[str, ...] = (NAMESPACE_DEFAULT,)
    topics: re.Pattern[str] = EVERY_TOPIC
    """The catalog gets the topics whose whole names match."""
    properties: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts that must not be shown."""
    secret_files: tuple[Path, ...] = ()
    """The files that values come from."""


def read_external_catalogs(
    store_url: str, values: Mapping[str, Value], environment: Mapping[str, str]
) -> tuple[ExternalCatalogSettings, ...]:
    """The catalogs that the file of `--external-catalogs` lists. Raises `InvalidSettings`."""
    value = values.get("external-catalogs")
    if value is None:
        return ()
    assert isinstance(value, str)
    if isinstance(read_store_url(store_url), MemoryUrl):
        raise InvalidSettings("--external-catalogs: no other program can read tables of a store in memory")
    path = Path(value).expanduser().absolute()
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"--external-catalogs {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"--external-catalogs {path} is not TOML: {error}") from error
    if not 0 < len(tables) <= EXTERNAL_CATALOGS_MAX:
        raise InvalidSettings(
            f"--external-catalogs {path} has {len(tables)} catalogs: write a table [NAME] for each, 1 to "
            f"{EXTERNAL_CATALOGS_MAX} of them"
        )
    return tuple(_external_catalog(path, name, table, environment) for name, table in tables.items())


def _external_catalog(path: Path, name: str, table: object, environment: Mapping[str, str]) -> ExternalCatalogSettings:
    origin = f"--external-catalogs {path}: [{name}]"
    if not isinstance(table, Mapping) or not _NAME.fullmatch(name):
        raise InvalidSettings(f"{origin} is no table of a catalog: a name has only letters, digits, _ and -")
    secrets: list[str] = []
    files = tuple(Path(value["file"]).expanduser() for value in table.values() if _is_of_file(value))
    properties = {key: _value(f"{origin} {key}", value, environment, secrets) for key, value in table.items()}
    namespace = tuple(properties.pop("namespace", NAMESPACE_DEFAULT).split("."))
    if not all(namespace):
        raise InvalidSettings(f"{origin} namespace: separate levels by single dots, as in raw.kafka")
    try:
        topics = re.compile(properties.pop("topics", EVERY_TOPIC.pattern))
    except re.error as error:
        raise InvalidSettings(f"{origin} topics is no regular expression of Python: {error}") from error
    kind = properties.get("type")
    if kind is None or kind not in _MODULES:
        fault = "is missing" if kind is None else f"{kind!r} is not supported"
        raise InvalidSettings(
            f"{origin} type {fault}: it is one of {', '.join(_MODULES)}{nearest(kind or '', _MODULES)}"
        )
    if kind in _WITH_URI and "uri" not in properties:
        raise InvalidSettings(f"{origin} uri is missing: give the address of the catalog of type {kind}")
    uri = properties.get("uri", "")
    for module in ("pyiceberg", _MODULES[kind], _DRIVERS.get(uri.partition("://")[0])):
        if module is not None and importlib.util.find_spec(module) is None:
            package = _PACKAGES.get(module, "penstock[external-catalogs]")
            raise InvalidSettings(f"{origin} type {kind} needs the module {module}: pip install '{package}'")
    secrets += [value for key, value in properties.items() if _SECRET.search(key)]
    return ExternalCatalogSettings(
        name=name,
        namespace=namespace,
        topics=topics,
        properties={**_DEFAULTS.get(kind, {}), **properties},
        secrets=tuple(dict.fromkeys([*filter(None, secrets), *_passwords(uri)])),
        secret_files=files,
    )


def _is_of_file(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("file"), str)


def _value(origin: str, value: object, environment: Mapping[str, str], secrets: list[str]) -> str:
    """A property's value as text. A value of the environment or of another file is added to `secrets`."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case {"env": str(variable), **others} if not others:
            text = environment.get(variable)
            if not text:
                raise InvalidSettings(f"{origin}: the environment has no {variable}, or it is empty")
        case {"file": str(name), **others} if not others:
            text = _first_line(origin, Path(name).expanduser())
        case _:
            raise InvalidSettings(
                f'{origin} must be a text, a number, true or false, {{ env = "VARIABLE" }} or {{ file = "/PATH" }}; '
                "quote keys that hold dots"
            )
    secrets.append(text)
    return text


def _first_line(origin: str, path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InvalidSettings(f"{origin}: {path} cannot be read: {error.strerror}") from error
    if not lines or not lines[0]:
        raise InvalidSettings(f"{origin}: the first line of {path} is the value, and it is empty")
    return lines[0]


def _passwords(uri: str) -> Iterator[str]:
    """The password in a URI, as it is written there and decoded."""
    try:
        password = urlsplit(uri).password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)
