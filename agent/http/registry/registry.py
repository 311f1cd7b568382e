"""The schema registry: answers reads from the state, and checks and proposes changes.

Rule: an answer that could be out of date waits for a barrier (safety rule S4). A schema id never changes its content,
so a known id needs none. A new schema is compared, in a thread, with the versions of one moment. The entry names that
moment; when a concurrent change rejects it, the schema is compared again.
Source: Confluent Schema Registry API 8.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from msgspec.structs import replace

from agent.http.services import AdminServices
from agent.runtime.threads import run_in_thread
from agent.schemas.parsed import InvalidSchema, Parsed
from agent.schemas.references import ParsedSchemas, TextsMissing
from agent.schemas.rules import faults_between, versions_that_count
from coordinator.commands.commands import Outcome, Rejected
from coordinator.commands.registry import (
    Compatibility,
    RegisterSchema,
    RegistryCommand,
    RegistryError,
    RegistryMode,
    RegistryRejected,
    SchemaContent,
    SchemaReference,
    SchemaRegistered,
    SchemaType,
)
from coordinator.state.registry import Registry
from protocol.limits import LEDGER_WAIT_SECONDS_MAX, REGISTRY_TRIES_MAX, SCHEMA_BYTES_MAX

NOT_FOUND, SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 404, 40401, 40402, 40403
INCOMPATIBLE, INVALID_SCHEMA, TOO_LARGE, TIMED_OUT = 409, 42201, 42209, 50002
LATEST = -1
"""The version number that stands for the newest version."""


class RegistryFailure(Exception):
    """An error of the API. The first three digits of `code` are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRequest:
    """A schema to look up or to register."""

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
    """The GUID of a content: the same in every Penstock cluster."""
    return str(UUID(bytes=content.digest))


class SchemaRegistry:
    def __init__(self, services: AdminServices) -> None:
        self._ledger = services.ledger
        self._clock = services.clock
        self._parsed = ParsedSchemas()

    @property
    def registry(self) -> Registry:
        """The registry as far as this agent has applied the ledger: read it again after every await."""
        return self._ledger.state.registry

    async def caught_up(self) -> Registry:
        """The registry with everything that was committed before this call."""
        await self._ledger.barrier()
        return self.registry

    async def content(self, schema_id: int) -> SchemaContent:
        """The schema with this id."""
        found = self.registry.schemas.get(schema_id) or (await self.caught_up()).schemas.get(schema_id)
        if found is None:
            raise RegistryFailure(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        return found

    async def formatted(self, content: SchemaContent, text_format: str) -> str:
        """The text of a registered schema in the given format; "" is the format of registration."""
        return (await self._parse(content)).formatted(text_format) if text_format else content.text

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
        """The versions of a subject, ascending. Raises `RegistryFailure` where it has none."""
        state = self.registry.subjects.get(subject)
        versions = [] if state is None else list(state.versions) if with_deleted else state.live()
        if not versions:
            raise RegistryFailure(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")
        return versions

    async def look_up(self, subject: str, request: SchemaRequest, *, with_deleted: bool) -> Registered:
        """The version of the subject with the same schema."""
        await self._ledger.barrier()
        self.versions(subject, with_deleted=with_deleted)
        content, parsed = await self._read(request)
        found = await self._same(subject, content, parsed, with_deleted=with_deleted)
        if found is None:
            raise RegistryFailure(SCHEMA_NOT_FOUND, "Schema not found")
        return found

    async def faults(self, subject: str, request: SchemaRequest, version: int | None) -> list[str]:
        """The incompatibilities with `version`, or without one with all versions that the compatibility level names."""
        await self._ledger.barrier()
        _, parsed = await self._read(request)
        compatibility = self.registry.compatibility(subject)
        live = _versions_of(self.registry, subject, with_deleted=False)
        if version is None:
            return await self._faults(parsed, versions_that_count(compatibility, live), compatibility)
        versions = live[-1:] if version == LATEST else [each for each in live if each.version == version]
        if version != LATEST and not versions:
            raise RegistryFailure(VERSION_NOT_FOUND, f"Version {version} not found.")
        return await self._faults(parsed, versions, compatibility)

    async def register(
        self, subject: str, request: SchemaRequest, begins: Callable[[], object] = lambda: None
    ) -> Registered:
        """The version of the subject with this schema, registered now where there is none.

        `begins` is called once, before a schema is about to be registered.
        """
        is_begun = False

        def begin() -> None:
            nonlocal is_begun
            if not is_begun:
                is_begun = True
                begins()

        await self._ledger.barrier()
        for _ in range(REGISTRY_TRIES_MAX):
            found = await self._try_to_register(subject, request, begin)
            if found is not None:
                return found
        raise RegistryFailure(
            TIMED_OUT, f"Subject '{subject}' is changed by other clients all the time: try again later."
        )

    async def propose(self, command: RegistryCommand) -> Outcome:
        """Propose a command. A rejection is raised as `RegistryFailure`."""
        try:
            async with self._clock.timeout(LEDGER_WAIT_SECONDS_MAX):
                outcome = await self._ledger.propose(command)
        except TimeoutError as error:
            raise RegistryFailure(
                TIMED_OUT,
                "The ledger did not answer in time: the change may still be made. Read it back, and try again.",
            ) from error
        if isinstance(outcome, Rejected):
            raise RegistryFailure(TIMED_OUT, outcome.reason)
        if isinstance(outcome, RegistryRejected) and outcome.error is not RegistryError.CHANGED_MEANWHILE:
            raise RegistryFailure(outcome.error.value, outcome.reason)
        return outcome

    async def _try_to_register(
        self, subject: str, request: SchemaRequest, begin: Callable[[], None]
    ) -> Registered | None:
        """The registered version; None where the subject was changed meanwhile."""
        content, parsed = await self._read(request)
        registry = self.registry
        checked_at, compatibility = registry.changed_at(subject), registry.compatibility(subject)
        live = _versions_of(registry, subject, with_deleted=False)
        if request.schema_id is None and request.version is None:
            found = await self._same(subject, content, parsed, with_deleted=False)
            if found is not None:
                return found
            if registry.mode(subject) is RegistryMode.READWRITE:
                await self._check_faults(subject, parsed, live, compatibility)
        begin()
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
        """The content to register. A reference to the latest version becomes one to its current number."""
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
        state = self.registry.subjects.get(reference.subject)
        live = [] if state is None else state.live()
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
        """The newest version with this content, or else with an equal schema in another text."""
        registry = self.registry
        found = registry.find(subject, content, with_deleted=with_deleted)
        if found is not None:
            return registered(registry, subject, found[1])
        if content.schema_type is not SchemaType.PROTOBUF:
            return None
        for version in reversed(_versions_of(registry, subject, with_deleted=with_deleted)):
            other = version.content
            if other.schema_type is content.schema_type and other.references == content.references:
                try:
                    if (await self._parsed.parse(self.registry, other)).is_same(parsed):
                        return version
                except (TextsMissing, InvalidSchema):
                    continue
        return None

    async def _faults(self, new: Parsed, versions: Sequence[Registered], compatibility: Compatibility) -> list[str]:
        """The incompatibilities with the newest version that has any. The event loop runs between two versions."""
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
    """An existing version."""
    state = registry.subjects[subject].versions[version]
    return Registered(
        subject=subject,
        version=version,
        schema_id=state.schema_id,
        content=registry.schemas[state.schema_id],
        is_deleted=state.is_deleted,
    )


def _versions_of(registry: Registry, subject: str, *, with_deleted: bool) -> list[Registered]:
    """The subject's current versions, ascending; empty for an unknown subject."""
    state = registry.subjects.get(subject)
    versions = [] if state is None else list(state.versions) if with_deleted else state.live()
    return [registered(registry, subject, version) for version in versions]
