"""The schema registry: what is asked of it is answered from the state, and what is to be changed is judged and written.

Rule: an answer that could be out of date is given behind a barrier (safety rule S4); a schema that is known by its id
is what it is for ever. A new one is compared, in a thread, with the versions that the state had at one moment; the
entry names that moment, and where it is refused because something came before, the schema is judged again.
Source: Confluent Schema Registry API 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from msgspec.structs import replace

from agent.http.port import RegistryAgent
from agent.runtime.threads import run_in_thread
from agent.schemas.parsed import InvalidSchema, Parsed
from agent.schemas.references import ParsedSchemas, TextsMissing
from agent.schemas.rules import faults_between, versions_that_count
from coordinator.commands.commands import Outcome, Refused
from coordinator.commands.registry import (
    Compatibility,
    RegisterSchema,
    RegistryCommand,
    RegistryError,
    RegistryMode,
    RegistryRefused,
    SchemaContent,
    SchemaReference,
    SchemaRegistered,
    SchemaType,
)
from coordinator.state.registry import Registry
from protocol.limits import REGISTRY_TRIES_MAX, SCHEMA_BYTES_MAX

NOT_FOUND, SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 404, 40401, 40402, 40403
INCOMPATIBLE, INVALID_SCHEMA, TOO_LARGE, TIMED_OUT = 409, 42201, 42209, 50002
LATEST = -1
"""Of versions: the newest."""


class RegistryFailure(Exception):
    """An answer that is an error, with one of the API's codes: its first three digits are those of HTTP."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRequest:
    """A schema as it is asked about or to be registered."""

    schema_type: SchemaType
    text: str
    references: tuple[SchemaReference, ...]
    is_normalized: bool
    schema_id: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    content: SchemaContent
    is_deleted: bool

    @property
    def guid(self) -> str:
        return guid_of(self.content)


def guid_of(content: SchemaContent) -> str:
    """An id that the same content has in every registry of this program."""
    return str(UUID(bytes=content.digest))


class SchemaRegistry:
    def __init__(self, agent: RegistryAgent) -> None:
        self._agent = agent
        self._parsed = ParsedSchemas()

    @property
    def registry(self) -> Registry:
        """The registry as far as this agent has applied the ledger: read it again after every wait."""
        return self._agent.state.registry

    async def caught_up(self) -> Registry:
        """The registry with everything that was there when this was called."""
        await self._agent.barrier()
        return self.registry

    async def content(self, schema_id: int) -> SchemaContent:
        """The schema with this id."""
        found = self.registry.schemas.get(schema_id) or (await self.caught_up()).schemas.get(schema_id)
        if found is None:
            raise RegistryFailure(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        return found

    async def formatted(self, content: SchemaContent, wanted: str) -> str:
        """The text of a registered schema in a form of this name; "" for the one in which it was registered."""
        return (await self._parse(content)).formatted(wanted) if wanted else content.text

    def version(self, subject: str, version: int, *, with_deleted: bool) -> Registered:
        """A version of a subject, or the `LATEST`."""
        registry = self.registry
        versions = self.versions(subject, with_deleted=with_deleted)
        if version == LATEST and versions:
            version = versions[-1]
        if version not in versions:
            raise RegistryFailure(VERSION_NOT_FOUND, f"Version {version} not found.")
        return registered(registry, subject, version)

    def versions(self, subject: str, *, with_deleted: bool) -> list[int]:
        """Versions of a subject that has any, in their order."""
        held = self.registry.subjects.get(subject)
        versions = [] if held is None else list(held.versions) if with_deleted else held.live()
        if not versions:
            raise RegistryFailure(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")
        return versions

    async def look_up(self, subject: str, request: SchemaRequest, *, with_deleted: bool) -> Registered:
        """Which version of the subject says the same."""
        await self._agent.barrier()
        self.versions(subject, with_deleted=with_deleted)
        content, parsed = await self._read(request)
        found = await self._same(subject, content, parsed, with_deleted=with_deleted)
        if found is None:
            raise RegistryFailure(SCHEMA_NOT_FOUND, "Schema not found")
        return found

    async def faults(self, subject: str, request: SchemaRequest, version: int | None) -> list[str]:
        """Why the schema would not go with the subject's versions that count, or with that one, if it is there."""
        await self._agent.barrier()
        _, parsed = await self._read(request)
        compatibility = self.registry.compatibility(subject)
        live = _held(self.registry, subject, with_deleted=False)
        if version is None:
            return await self._faults(parsed, versions_that_count(compatibility, live), compatibility)
        wanted = live[-1:] if version == LATEST else [each for each in live if each.version == version]
        if version != LATEST and not wanted:
            raise RegistryFailure(VERSION_NOT_FOUND, f"Version {version} not found.")
        return await self._faults(parsed, wanted, compatibility)

    async def register(self, subject: str, request: SchemaRequest) -> Registered:
        """The version of the subject that this schema is, made now if need be."""
        await self._agent.barrier()
        for _ in range(REGISTRY_TRIES_MAX):
            found = await self._try_to_register(subject, request)
            if found is not None:
                return found
        raise RegistryFailure(TIMED_OUT, f"Subject '{subject}' is changed by others all the time: try again later.")

    async def propose(self, command: RegistryCommand) -> Outcome:
        """Have a command carried out; what refuses it becomes the answer."""
        try:
            outcome = await self._agent.propose(command)
        except TimeoutError as error:
            raise RegistryFailure(
                TIMED_OUT, "The ledger did not answer in time: whether it was done is unknown."
            ) from error
        if isinstance(outcome, Refused):
            raise RegistryFailure(TIMED_OUT, outcome.reason)
        if isinstance(outcome, RegistryRefused) and outcome.error is not RegistryError.CHANGED_MEANWHILE:
            raise RegistryFailure(outcome.error.value, outcome.reason)
        return outcome

    async def _try_to_register(self, subject: str, request: SchemaRequest) -> Registered | None:
        """None where the subject was changed meanwhile."""
        content, parsed = await self._read(request)
        registry = self.registry
        checked_at, compatibility = registry.changed_at(subject), registry.compatibility(subject)
        live = _held(registry, subject, with_deleted=False)
        if request.schema_id is None and request.version is None:
            found = await self._same(subject, content, parsed, with_deleted=False)
            if found is not None:
                return found
            if registry.mode(subject) is RegistryMode.READWRITE:
                await self._check_faults(subject, parsed, live, compatibility)
        outcome = await self.propose(
            RegisterSchema(
                subject=subject,
                content=content,
                checked_at=checked_at,
                checked_as=compatibility,
                schema_id=request.schema_id,
                version=request.version,
            )
        )
        if not isinstance(outcome, SchemaRegistered):
            return None
        return Registered(
            subject=subject,
            version=outcome.version,
            schema_id=outcome.schema_id,
            content=content,
            is_deleted=False,
        )

    async def _check_faults(
        self, subject: str, parsed: Parsed, live: Sequence[Registered], compatibility: Compatibility
    ) -> None:
        faults = await self._faults(parsed, versions_that_count(compatibility, live), compatibility)
        if faults:
            raise RegistryFailure(
                INCOMPATIBLE,
                f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
                f"details: {faults}, compatibility: {compatibility.name}",
            )

    async def _read(self, request: SchemaRequest) -> tuple[SchemaContent, Parsed]:
        """The schema as it is registered. A reference to the latest version is one to the version that this is now."""
        if not request.text.strip():
            raise RegistryFailure(INVALID_SCHEMA, "Empty schema")
        if len(request.text.encode()) > SCHEMA_BYTES_MAX:
            raise RegistryFailure(TOO_LARGE, f"The schema is larger than {SCHEMA_BYTES_MAX} bytes.")
        references = tuple(map(self._resolved, request.references))
        given = SchemaContent(schema_type=request.schema_type, text=request.text, references=references)
        parsed = await self._parse(given)
        text = parsed.normalized if request.is_normalized else parsed.text
        return replace(given, text=text), parsed

    def _resolved(self, reference: SchemaReference) -> SchemaReference:
        held = self.registry.subjects.get(reference.subject)
        live = [] if held is None else held.live()
        return replace(reference, version=live[-1]) if reference.version == LATEST and live else reference

    async def _parse(self, content: SchemaContent) -> Parsed:
        try:
            return await self._parsed.parse(self.registry, content)
        except TextsMissing as error:
            raise RegistryFailure(INVALID_SCHEMA, str(error)) from error
        except InvalidSchema as error:
            raise RegistryFailure(
                INVALID_SCHEMA, f"Invalid schema of the type {content.schema_type.name}: {error}"
            ) from error

    async def _same(
        self, subject: str, content: SchemaContent, parsed: Parsed, *, with_deleted: bool
    ) -> Registered | None:
        """The newest version with this content; else, the newest that says the same in another text."""
        registry = self.registry
        found = registry.find(subject, content, with_deleted=with_deleted)
        if found is not None:
            return registered(registry, subject, found[1])
        if content.schema_type is not SchemaType.PROTOBUF:
            return None
        for version in reversed(_held(registry, subject, with_deleted=with_deleted)):
            other = version.content
            if other.schema_type is content.schema_type and other.references == content.references:
                try:
                    if (await self._parsed.parse(self.registry, other)).is_same(parsed):
                        return version
                except (TextsMissing, InvalidSchema):
                    continue
        return None

    async def _faults(self, new: Parsed, versions: Sequence[Registered], compatibility: Compatibility) -> list[str]:
        """One version after the other, so that the loop goes on between them, the newest first."""
        for each in reversed(versions):
            try:
                earlier = await self._parsed.parse(self.registry, each.content)
            except (TextsMissing, InvalidSchema) as error:
                return [f"Version {each.version} cannot be read, so nothing can be compared with it: {error}"]
            faults = await run_in_thread(faults_between, new, earlier, each.version, compatibility)
            if faults:
                return faults
        return []


def registered(registry: Registry, subject: str, version: int) -> Registered:
    """A version that is there."""
    state = registry.subjects[subject].versions[version]
    return Registered(
        subject=subject,
        version=version,
        schema_id=state.schema_id,
        content=registry.schemas[state.schema_id],
        is_deleted=state.is_deleted,
    )


def _held(registry: Registry, subject: str, *, with_deleted: bool) -> list[Registered]:
    """The subject's versions as they are now, in their order; none of one that is not there."""
    held = registry.subjects.get(subject)
    versions = [] if held is None else list(held.versions) if with_deleted else held.live()
    return [registered(registry, subject, version) for version in versions]
