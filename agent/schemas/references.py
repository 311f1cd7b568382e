"""Parses schemas of the registry together with their references, and caches the results.

Rule: an id never changes its content, so a parsed schema is valid as long as its references have the same ids.
"""

from collections import OrderedDict

from agent.runtime.threads import run_in_thread
from agent.schemas.parse import parse
from agent.schemas.parsed import InvalidSchema, NamedText, Parsed
from coordinator.commands.registry import SchemaContent, SchemaReference
from coordinator.state.registry import Registry
from protocol.limits import SCHEMA_FILES_BYTES_MAX, SCHEMA_FILES_MAX, SCHEMAS_PARSED_CACHED_MAX

Key = tuple[bytes, tuple[tuple[str, int], ...]]


class TextsMissing(Exception):
    """A reference to a version that is not registered."""


class ParsedSchemas:
    """A cache of parsed schemas; used by one event loop."""

    def __init__(self) -> None:
        self._cache: OrderedDict[Key, Parsed] = OrderedDict()

    async def parse(self, registry: Registry, content: SchemaContent) -> Parsed:
        """The parsed schema, by a thread if it is not cached. Raises `InvalidSchema` or `TextsMissing`."""
        referred = referred_ids(registry, content)
        key = content.digest, tuple(referred.items())
        parsed = self._cache.get(key)
        if parsed is None:
            texts = [NamedText(name=name, text=registry.schemas[each].text) for name, each in referred.items()]
            parsed = await run_in_thread(parse, content.schema_type, content.text, texts)
        self._cache[key] = parsed
        self._cache.move_to_end(key)
        if len(self._cache) > SCHEMAS_PARSED_CACHED_MAX:
            self._cache.popitem(last=False)
        return parsed


def referred_ids(registry: Registry, content: SchemaContent) -> dict[str, int]:
    """The ids of all schemas that a content refers to, directly or not, by name; each after its own references.

    Raises `InvalidSchema` or `TextsMissing`.
    """
    ids_by_name: dict[str, int] = {}
    text_bytes = 0
    waiting = [(reference, False) for reference in reversed(content.references)]
    while waiting:
        reference, is_ready = waiting.pop()
        schema_id = _schema_id(registry, reference)
        needed = registry.schemas[schema_id]
        if needed.schema_type is not content.schema_type:
            message = f"{reference.name!r} is a schema of the type {needed.schema_type.name}"
            raise InvalidSchema(f"{message}, which one of the type {content.schema_type.name} cannot refer to")
        if reference.name in ids_by_name:
            if ids_by_name[reference.name] != schema_id:
                raise InvalidSchema(f"the name {reference.name!r} refers to two schemas")
        elif is_ready or not needed.references:
            ids_by_name[reference.name] = schema_id
            text_bytes += len(needed.text)
        else:
            waiting.append((reference, True))
            waiting += [(each, False) for each in reversed(needed.references)]
        if max(len(ids_by_name), len(waiting)) > SCHEMA_FILES_MAX or text_bytes > SCHEMA_FILES_BYTES_MAX:
            message = f"at most {SCHEMA_FILES_MAX} schemas with {SCHEMA_FILES_BYTES_MAX} bytes in total"
            raise InvalidSchema(f"it refers to too many schemas: {message}")
    return ids_by_name


def _schema_id(registry: Registry, reference: SchemaReference) -> int:
    subject = registry.subjects.get(reference.subject)
    version = None if subject is None else subject.versions.get(reference.version)
    if version is None:
        message = f"No schema reference found for subject '{reference.subject}' and version {reference.version}"
        raise TextsMissing(message)
    return version.schema_id
