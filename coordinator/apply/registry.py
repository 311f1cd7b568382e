"""Schemas, subjects and their settings. Called by `coordinator.apply.apply`.

Rule: a schema is registered under the versions and the compatibility that its agent judged it against, or not at all:
of two at a time one is judged again, against the other. Texts are never read here. How much there may be is judged
here, with the values of `protocol.limits`: changing one of them is a change of the rules (S3).
Source: io.confluent.kafka.schemaregistry.storage.KafkaSchemaRegistry (8.0), what it checks and in which order.
Differs from Confluent's: what others refer to cannot be deleted permanently while a deleted version refers to it; a
content that has an id keeps it in IMPORT mode, and a version that is there is not made another.
"""

from collections.abc import Collection
from typing import assert_never

from coordinator.commands.commands import Done, Outcome
from coordinator.commands.registry import (
    EVERY_SUBJECT,
    Compatibility,
    DeleteVersions,
    RegisterSchema,
    RegistryCommand,
    RegistryError,
    RegistryMode,
    RegistryRejected,
    SchemaRegistered,
    SetCompatibility,
    SetMode,
    VersionsDeleted,
)
from coordinator.state.registry import SUBJECT_VERSION_FIRST, Registry, SubjectVersion, VersionState
from protocol.limits import (
    REGISTRY_SUBJECTS_MAX,
    REGISTRY_TEXT_BYTES_MAX,
    SCHEMA_BYTES_MAX,
    SCHEMA_REFERENCES_BYTES_MAX,
    SCHEMA_REFERENCES_MAX,
    SCHEMAS_MAX,
    SUBJECT_CHARS_MAX,
    SUBJECT_VERSIONS_MAX,
)

ID_END = 1 << 31
"""Ids and versions are signed 32-bit numbers in the API, and in records."""


def apply_registry_command(registry: Registry, command: RegistryCommand) -> Outcome:
    """The part of `coordinator.apply.apply` that is about schemas."""
    match command:
        case RegisterSchema():
            return register_schema(registry, command)
        case DeleteVersions():
            return delete_versions(registry, command)
        case SetCompatibility():
            return set_compatibility(registry, command)
        case SetMode():
            return set_mode(registry, command)
        case _:
            assert_never(command)


def register_schema(registry: Registry, command: RegisterSchema) -> SchemaRegistered | RegistryRejected:
    """Find the schema's id and version, or give it new ones."""
    subject, content = command.subject, command.content
    rejected = _check_name(subject)
    if rejected is not None:
        return rejected
    known_id = registry.ids_by_digest.get(content.digest)
    registered = registry.find(subject, content)
    if registered is not None and command.version is None and command.schema_id in (None, known_id):
        return SchemaRegistered(schema_id=registered[0], version=registered[1])
    rejected = _check_registering(registry, command) or _check_references(registry, command)
    if rejected is not None:
        return rejected
    subject_state = registry.subjects.get(subject)
    schema_id = command.schema_id if command.schema_id is not None else known_id
    if schema_id is None:
        schema_id = registry.schema_id_next
    version = command.version
    if version is None:
        version = SUBJECT_VERSION_FIRST if subject_state is None else max(subject_state.versions) + 1
    rejected = (
        _check_imported(registry, command, known_id)
        or _check_seen(registry, command)
        or _check_room(registry, command, schema_id, version, is_known=known_id is not None)
    )
    if rejected is not None:
        return rejected
    if known_id is None:
        registry.add_schema(schema_id, content)
    registry.put_version(subject, version, VersionState(schema_id=schema_id))
    registry.note_change(subject)
    return SchemaRegistered(schema_id=schema_id, version=version)


def _check_name(subject: str) -> RegistryRejected | None:
    if 0 < len(subject) <= SUBJECT_CHARS_MAX:
        return None
    reason = f"A subject has 1 to {SUBJECT_CHARS_MAX} characters, this one has {len(subject)}."
    return RegistryRejected(error=RegistryError.INVALID_SUBJECT, reason=reason)


def _check_registering(registry: Registry, command: RegisterSchema) -> RegistryRejected | None:
    mode = registry.mode(command.subject)
    is_import = command.schema_id is not None or command.version is not None
    mode_needed = RegistryMode.IMPORT if is_import else RegistryMode.READWRITE
    if mode is mode_needed:
        return None
    remedy = " Schemas come with their ids then." if mode is RegistryMode.IMPORT else ""
    reason = f"Subject {command.subject} is in {mode.name} mode, this takes {mode_needed.name}.{remedy}"
    return RegistryRejected(error=RegistryError.OPERATION_NOT_PERMITTED, reason=reason)


def _check_references(registry: Registry, command: RegisterSchema) -> RegistryRejected | None:
    content = command.content
    if len(content.references) > SCHEMA_REFERENCES_MAX:
        reason = f"The schema has {len(content.references)} references, {SCHEMA_REFERENCES_MAX} is the most."
        return RegistryRejected(error=RegistryError.INVALID_SCHEMA, reason=reason)
    names_bytes = sum(len(each.name.encode()) + len(each.subject.encode()) for each in content.references)
    if names_bytes > SCHEMA_REFERENCES_BYTES_MAX:
        reason = f"The references' names have {names_bytes} bytes, {SCHEMA_REFERENCES_BYTES_MAX} is the most."
        return RegistryRejected(error=RegistryError.INVALID_SCHEMA, reason=reason)
    for reference in content.references:
        if registry.live_version(reference.subject, reference.version) is None:
            reason = f"No schema reference found for subject '{reference.subject}' and version {reference.version}."
            return RegistryRejected(error=RegistryError.INVALID_SCHEMA, reason=reason)
    return None


def _check_imported(registry: Registry, command: RegisterSchema, known_id: int | None) -> RegistryRejected | None:
    """Reject an id that has another content, and a version that has another id: neither ever changes its meaning."""
    reason = ""
    if command.schema_id is not None and known_id not in (None, command.schema_id):
        reason = f"The schema has the id {known_id} already, it cannot have {command.schema_id} too."
    elif command.schema_id is not None and known_id is None and command.schema_id in registry.schemas:
        reason = f"Overwriting the schema with id {command.schema_id} is not permitted."
    subject_state = registry.subjects.get(command.subject)
    version_state = (
        None if subject_state is None or command.version is None else subject_state.versions.get(command.version)
    )
    if not reason and version_state is not None and version_state.schema_id != known_id:
        reason = f"Version {command.version} of subject {command.subject} is another schema already."
    return RegistryRejected(error=RegistryError.OPERATION_NOT_PERMITTED, reason=reason) if reason else None


def _check_seen(registry: Registry, command: RegisterSchema) -> RegistryRejected | None:
    """Reject a schema that was checked against versions or a compatibility that have changed since.

    Imported schemas are not checked for compatibility.
    """
    compatibility = registry.compatibility(command.subject)
    if registry.mode(command.subject) is RegistryMode.IMPORT:
        return None
    is_seen = command.checked_at == registry.changed_at(command.subject) or compatibility is Compatibility.NONE
    if command.checked_as is compatibility and is_seen:
        return None
    reason = f"Subject {command.subject} was changed meanwhile."
    return RegistryRejected(error=RegistryError.CHANGED_MEANWHILE, reason=reason)


def _check_room(
    registry: Registry, command: RegisterSchema, schema_id: int, version: int, *, is_known: bool
) -> RegistryRejected | None:
    text_bytes = len(command.content.text.encode())
    if text_bytes > SCHEMA_BYTES_MAX:
        reason = f"The schema has {text_bytes} bytes, {SCHEMA_BYTES_MAX} is the most."
        return RegistryRejected(error=RegistryError.SCHEMA_TOO_LARGE, reason=reason)
    subject_state = registry.subjects.get(command.subject)
    reason = ""
    if subject_state is None and len(registry.subjects) >= REGISTRY_SUBJECTS_MAX:
        reason = f"There are {len(registry.subjects)} subjects, {REGISTRY_SUBJECTS_MAX} is the most."
    elif (
        subject_state is not None
        and version not in subject_state.versions
        and len(subject_state.versions) >= SUBJECT_VERSIONS_MAX
    ):
        reason = (
            f"Subject {command.subject} has {len(subject_state.versions)} versions, {SUBJECT_VERSIONS_MAX} is the most."
        )
    elif not is_known and len(registry.schemas) >= SCHEMAS_MAX:
        reason = f"There are {len(registry.schemas)} schemas, {SCHEMAS_MAX} is the most."
    elif not is_known and registry.text_bytes + text_bytes > REGISTRY_TEXT_BYTES_MAX:
        reason = f"All schemas have {registry.text_bytes} bytes, {REGISTRY_TEXT_BYTES_MAX} is the most."
    elif schema_id >= ID_END or version >= ID_END:
        reason = f"Ids and versions end at {ID_END - 1}."
    if not reason:
        return None
    reason = f"{reason} Permanently delete schemas that are not needed."
    return RegistryRejected(error=RegistryError.OPERATION_NOT_PERMITTED, reason=reason)


def delete_versions(registry: Registry, command: DeleteVersions) -> VersionsDeleted | RegistryRejected:
    """Delete one version or all: first softly, so that they can still be read, then permanently."""
    subject = command.subject
    if registry.mode(subject) is RegistryMode.READONLY:
        return _read_only(subject)
    versions = _deletable(registry, command)
    if isinstance(versions, RegistryRejected):
        return versions
    rejected = _check_unreferenced(registry, [(subject, each) for each in versions], is_permanent=command.is_permanent)
    if rejected is not None:
        return rejected
    version_states = registry.subjects[subject].versions
    for version in versions:
        if command.is_permanent:
            registry.drop_version(subject, version)
        else:
            registry.put_version(
                subject, version, VersionState(schema_id=version_states[version].schema_id, is_deleted=True)
            )
    registry.note_change(subject)
    if command.version is None and not command.is_permanent:
        registry.compatibilities.pop(subject, None)
        registry.modes.pop(subject, None)
    return VersionsDeleted(versions=tuple(versions))


def _deletable(registry: Registry, command: DeleteVersions) -> list[int] | RegistryRejected:
    subject, version = command.subject, command.version
    subject_state = registry.subjects.get(subject)
    if subject_state is None:
        return RegistryRejected(error=RegistryError.SUBJECT_NOT_FOUND, reason=f"Subject '{subject}' not found.")
    if version is None:
        live = subject_state.live()
        if not command.is_permanent and not live:
            reason = f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
            return RegistryRejected(error=RegistryError.SUBJECT_SOFT_DELETED, reason=reason)
        if command.is_permanent and live:
            reason = f"Subject '{subject}' was not deleted first before being permanently deleted"
            return RegistryRejected(error=RegistryError.SUBJECT_NOT_SOFT_DELETED, reason=reason)
        return list(subject_state.versions) if command.is_permanent else live
    version_state = subject_state.versions.get(version)
    if version_state is None:
        return RegistryRejected(error=RegistryError.VERSION_NOT_FOUND, reason=f"Version {version} not found.")
    if version_state.is_deleted and not command.is_permanent:
        reason = f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
        return RegistryRejected(error=RegistryError.VERSION_SOFT_DELETED, reason=reason)
    if not version_state.is_deleted and command.is_permanent:
        reason = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
        return RegistryRejected(error=RegistryError.VERSION_NOT_SOFT_DELETED, reason=reason)
    return [version]


def _check_unreferenced(
    registry: Registry, going: list[SubjectVersion], *, is_permanent: bool
) -> RegistryRejected | None:
    """Nothing that stays needs what goes."""
    leaving = set(going)
    for subject, version in going:
        for schema_id in registry.referrers_of(subject, version, with_deleted=is_permanent):
            if not leaving.issuperset(registry.users_of(schema_id, with_deleted=is_permanent)):
                reason = (
                    f"One or more references exist to subject '{subject}' version {version}: schema {schema_id} "
                    "refers to it. Delete that first."
                )
                return RegistryRejected(error=RegistryError.REFERENCE_EXISTS, reason=reason)
    return None


def set_compatibility(registry: Registry, command: SetCompatibility) -> Done | RegistryRejected:
    """Set it, or remove the subject's own."""
    subject = command.subject
    if registry.mode(subject) is RegistryMode.READONLY:
        return _read_only(subject)
    rejected = _check_setting(registry.compatibilities, subject, is_removed=command.compatibility is None)
    if rejected is not None:
        return rejected
    if command.compatibility is None:
        registry.compatibilities.pop(subject, None)
    else:
        registry.compatibilities[subject] = command.compatibility
    return Done()


def set_mode(registry: Registry, command: SetMode) -> Done | RegistryRejected:
    """Set it, or remove the subject's own. Importing begins with nothing there, unless it is forced."""
    subject = command.subject
    rejected = _check_setting(registry.modes, subject, is_removed=command.mode is None)
    if rejected is not None:
        return rejected
    if command.mode is None:
        registry.modes.pop(subject, None)
        return Done()
    if command.mode is RegistryMode.IMPORT and not command.is_forced:
        names = registry.subjects if subject == EVERY_SUBJECT else [subject]
        if any(name in registry.subjects and registry.subjects[name].live() for name in names):
            reason = "Cannot import since found existing subjects. Set force=true to import nevertheless."
            return RegistryRejected(error=RegistryError.OPERATION_NOT_PERMITTED, reason=reason)
    registry.modes[subject] = command.mode
    return Done()


def _check_setting(settings: Collection[str], subject: str, *, is_removed: bool) -> RegistryRejected | None:
    if is_removed and subject not in settings and subject != EVERY_SUBJECT:
        return RegistryRejected(error=RegistryError.SUBJECT_NOT_FOUND, reason=f"Subject '{subject}' not found.")
    if is_removed or subject in settings or subject == EVERY_SUBJECT:
        return None
    if len(settings) > REGISTRY_SUBJECTS_MAX:
        reason = f"{len(settings)} subjects have settings of their own, {REGISTRY_SUBJECTS_MAX} is the most."
        return RegistryRejected(error=RegistryError.OPERATION_NOT_PERMITTED, reason=reason)
    return _check_name(subject)


def _read_only(subject: str) -> RegistryRejected:
    reason = f"Subject {subject} is in READONLY mode" if subject else "The registry is in READONLY mode"
    return RegistryRejected(error=RegistryError.OPERATION_NOT_PERMITTED, reason=reason)
