"""Ledger commands about ACLs and SCRAM credentials, and the outcomes of applying them.

Rule: names, forms and lengths were judged by the agent that proposed a command (`coordinator.security.acls.check_acl`).
What a command does to the state is computed where its entry is applied, and its outcome says that: which ACLs a filter
removed, which users had no credential to delete. An entry holds keys that were derived from a password, never the
password, nor the salted password, which is worth as much.
Source: org.apache.kafka.controller.AclControlManager and ScramControlManager (Kafka 4.3).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from coordinator.commands.field_types import Index
from coordinator.commands.forms import WireStruct
from coordinator.commands.rules import RULES_SECURITY
from coordinator.security.acls import Acl, AclFilter
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import read_principal
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism

KEY_BYTES_MAX = 256
Secret = Annotated[bytes, Meta(min_length=1, max_length=KEY_BYTES_MAX)]
"""A salt or a key, which may be encrypted. No message, log line or `repr` shows it."""
Name = Annotated[str, Meta(min_length=1)]
CredentialId = tuple[str, ScramMechanism]
"""The user's name and the mechanism: a user has at most one credential for each."""


class AclRow(WireStruct, frozen=True):
    """An ACL in an entry or a snapshot."""

    SINCE: ClassVar[int] = RULES_SECURITY

    principal: Name
    host: Name
    operation: Operation
    permission: Permission
    resource_type: ResourceType
    name: Name
    pattern: PatternType

    @classmethod
    def of(cls, acl: Acl) -> "AclRow":
        """The row of an ACL."""
        return cls(
            str(acl.principal), acl.host, acl.operation, acl.permission, acl.resource_type, acl.name, acl.pattern
        )

    def acl(self) -> Acl:
        """The ACL. Raises `ValueError` for a principal that is none, and for a field that is ANY."""
        is_definite = (
            self.operation != Operation.ANY
            and self.permission != Permission.ANY
            and self.resource_type != ResourceType.ANY
            and self.pattern in (PatternType.LITERAL, PatternType.PREFIXED)
        )
        if not is_definite:
            raise ValueError("an ACL with a field that is ANY")
        return Acl(
            principal=read_principal(self.principal),
            host=self.host,
            operation=self.operation,
            permission=self.permission,
            resource_type=self.resource_type,
            name=self.name,
            pattern=self.pattern,
        )


class ScramRow(WireStruct, frozen=True):
    """A user's credential in an entry or a snapshot."""

    SINCE: ClassVar[int] = RULES_SECURITY
    SECRET_FIELDS: ClassVar[frozenset[str]] = frozenset({"salt", "stored_key", "server_key"})

    user: Name
    mechanism: ScramMechanism
    salt: Secret
    stored_key: Secret
    server_key: Secret
    iterations: Index

    def __repr__(self) -> str:
        return f"ScramRow(user={self.user!r}, mechanism={self.mechanism!r}, iterations={self.iterations})"

    @classmethod
    def of(cls, credential_id: CredentialId, credential: ScramCredential) -> "ScramRow":
        """The row of a credential."""
        user, mechanism = credential_id
        return cls(
            user, mechanism, credential.salt, credential.stored_key, credential.server_key, credential.iterations
        )

    @property
    def credential_id(self) -> CredentialId:
        return self.user, self.mechanism

    def credential(self) -> ScramCredential:
        """The credential without its user."""
        return ScramCredential(
            salt=self.salt, stored_key=self.stored_key, server_key=self.server_key, iterations=self.iterations
        )


class CreateAcls(WireStruct, frozen=True, kw_only=True, tag=70):
    """Create ACLs; those that are there already stay. All of them, or none where there would be too many.

    Raises `ValueError` for what is no ACL, as `AclRow.acl` does.
    """

    SINCE: ClassVar[int] = RULES_SECURITY

    rows: tuple[AclRow, ...]

    def __post_init__(self) -> None:
        _check_acls(self.rows)

    @classmethod
    def of(cls, acls: Iterable[Acl]) -> "CreateAcls":
        """The command that creates these ACLs."""
        return cls(rows=tuple(map(AclRow.of, acls)))


class DeleteAcls(WireStruct, frozen=True, kw_only=True, tag=71):
    """Delete the ACLs that fit a filter, where the entry is applied. Fields are None or ANY where all values fit."""

    SINCE: ClassVar[int] = RULES_SECURITY

    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission
    resource_type: ResourceType
    name: str | None
    pattern: PatternType

    @classmethod
    def of(cls, acl_filter: AclFilter) -> "DeleteAcls":
        """The command that deletes what the filter fits."""
        return cls(
            principal=acl_filter.principal,
            host=acl_filter.host,
            operation=acl_filter.operation,
            permission=acl_filter.permission,
            resource_type=acl_filter.resource_type,
            name=acl_filter.name,
            pattern=acl_filter.pattern,
        )

    def acl_filter(self) -> AclFilter:
        return AclFilter(
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission=self.permission,
            resource_type=self.resource_type,
            name=self.name,
            pattern=self.pattern,
        )


class AlterScram(WireStruct, frozen=True, kw_only=True, tag=72):
    """Delete credentials, then set others. A deletion of what is not there leaves the rest of the command as it is."""

    SINCE: ClassVar[int] = RULES_SECURITY

    deletions: tuple[tuple[Name, ScramMechanism], ...] = ()
    upsertions: tuple[ScramRow, ...] = ()


class BootstrapUsers(WireStruct, frozen=True, kw_only=True, tag=73):
    """Create the first users and their ACLs. Rejected once a cluster has ever had a credential or an ACL.

    So any number of agents may propose it, and none brings back what was deleted later.
    Raises `ValueError` for what is no ACL, as `AclRow.acl` does.
    """

    SINCE: ClassVar[int] = RULES_SECURITY

    credentials: tuple[ScramRow, ...]
    acls: tuple[AclRow, ...] = ()

    def __post_init__(self) -> None:
        _check_acls(self.acls)


SecurityCommand = CreateAcls | DeleteAcls | AlterScram | BootstrapUsers


def _check_acls(rows: Iterable[AclRow]) -> None:
    for row in rows:
        row.acl()


@dataclass(frozen=True, slots=True, kw_only=True)
class AclsCreated:
    """How many of a command's ACLs were not there before."""

    created_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AclsDeleted:
    """The ACLs that a filter removed, in order of their fields."""

    acls: tuple[Acl, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramAltered:
    """The credentials of a command that were to be deleted, and were not there. All others were altered."""

    missing: tuple[CredentialId, ...]


SecurityOutcome = AclsCreated | AclsDeleted | ScramAltered
