"""Schemas of the registry, read together with what they refer to, and kept as they were read.

Rule: what an id stands for never changes, so what was read of a content and of the ids that it refers to can be kept.
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
    """A reference to what is not registered."""


class ParsedSchemas:
    """Owns what it keeps; used by one event loop."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Parsed] = OrderedDict()

    async def parse(self, registry: Registry, content: SchemaContent) -> Parsed:
        """The schema, read in a thread. Raises `InvalidSchema` or `TextsMissing`."""
        referred = referred_ids(registry, content)
        key = content.digest, tuple(referred.items())
        found = self._kept.get(key)
        if found is None:
            texts = [NamedText(name=name, text=registry.schemas[each].text) for name, each in referred.items()]
            found = await run_in_thread(parse, content.schema_type, content.text, texts)
        self._kept[key] = found
        self._kept.move_to_end(key)
        if len(self._kept) > SCHEMAS_PARSED_CACHED_MAX:
            self._kept.popitem(last=False)
        return found


def referred_ids(registry: Registry, content: SchemaContent) -> dict[str, int]:
    """Ids of all schemas that are needed, by the names under which they are; each behind what it needs itself.

    Raises `InvalidSchema` or `TextsMissing`.
    """
    found: dict[str, int] = {}
    text_bytes = 0
    waiting = [(reference, False) for reference in reversed(content.references)]
    while waiting:
        reference, is_ready = waiting.pop()
        schema_id = _schema_id(registry, reference)
        needed = registry.schemas[schema_id]
        if needed.schema_type is not content.schema_type:
            message = f"{reference.name!r} is a schema of the type {needed.schema_type.name}"
            raise InvalidSchema(f"{message}, which one of the type {content.schema_type.name} cannot refer to")
        if reference.name in found:
            if found[reference.name] != schema_id:
                raise InvalidSchema(f"two schemas are referred to by the name {reference.name!r}")
        elif is_ready or not needed.references:
            found[reference.name] = schema_id
            text_bytes += len(needed.text)
        else:
            waiting.append((reference, True))
            waiting += [(each, False) for each in reversed(needed.references)]
        if max(len(found), len(waiting)) > SCHEMA_FILES_MAX or text_bytes > SCHEMA_FILES_BYTES_MAX:
            message = f"{SCHEMA_FILES_MAX} schemas of {SCHEMA_FILES_BYTES_MAX} bytes together are the most"
            raise InvalidSchema(f"it needs too many others to be read: {message}")
    return found


def _schema_id(registry: Registry, reference: SchemaReference) -> int:
    held = registry.subjects.get(reference.subject)
    found = None if held is None else held.versions.get(reference.version)
    if found is None:
        message = f"No schema reference found for subject '{reference.subject}' and version {reference.version}"
        raise TextsMissing(message)
    return found.schema_id
