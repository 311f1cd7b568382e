"""Access control lists by Kafka's requests: created, listed and deleted through the ledger."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from agent.admin import security_changes
from agent.admin.security_changes import entry_batches
from agent.config.authorizer_settings import AuthorizerSettings
from agent.request.services import Services
from agent.security.authorizer import Authorizer, StateAcls
from coordinator.apply import security as apply_security
from coordinator.commands.rules import RULES_CHECKED_ENTRIES
from coordinator.ledger.port import LedgerUnavailable
from protocol.errors import ErrorCode
from protocol.limits import SECURITY_NAME_CHARS_MAX
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.handlers.handler_client import ask
from tests.support.handlers.stalled_ledger import Impatient, stalled

DESCRIBE, CREATE, DELETE = 29, 30, 31
ANY, UNKNOWN = 1, 0
BINDING: Mapping[str, object] = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
EVERYTHING: Mapping[str, object] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}


@asynccontextmanager
async def serving() -> AsyncIterator[Services]:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        yield services_of(paths, ManualClock(), tasks, AuthorizerSettings(is_enabled=True))


async def create(services: Services, *changes: Mapping[str, object], version: int = 3) -> list[ErrorCode]:
    answer = await ask(services, CREATE, version, creations=[{**BINDING, **change} for change in changes])
    return [result.error_code for result in answer.results]


async def delete(services: Services, *changes: Mapping[str, object], version: int = 3) -> list[list[str]]:
    """The names of the ACLs that each filter removed."""
    answer = await ask(services, DELETE, version, filters=[{**EVERYTHING, **change} for change in changes])
    assert all(result.error_code is ErrorCode.none for result in answer.filter_results)
    return [[acl.resource_name for acl in result.matching_acls] for result in answer.filter_results]


async def described(services: Services, *, version: int = 3, **changes: object) -> dict[str, list[str]]:
    """Principals by the names of patterns."""
    answer = await ask(services, DESCRIBE, version, **{**EVERYTHING, **changes})
    assert answer.error_code is ErrorCode.none
    return {resource.resource_name: [acl.principal for acl in resource.acls] for resource in answer.resources}


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_what_is_created_is_listed_until_it_is_deleted(version: int) -> None:
    async with serving() as services:
        bob = {"principal": "User:bob"}
        assert await create(services, {}, bob, {"resource_name": "other"}, version=version) == [ErrorCode.none] * 3
        assert await described(services, version=version) == {
            "orders": ["User:alice", "User:bob"],
            "other": ["User:alice"],
        }
        assert await described(services, version=version, principal_filter="User:bob") == {"orders": ["User:bob"]}
        removed = await delete(services, {"resource_name_filter": "orders"}, {}, {}, version=version)
        assert removed == [["orders", "orders"], ["other"], []]
        assert await described(services, version=version) == {}


async def test_all_fields_of_an_acl_come_back() -> None:
    async with serving() as services:
        changes = {"resource_type": 5, "resource_pattern_type": 4, "host": "::1", "operation": 15, "permission_type": 2}
        await create(services, changes)
        answer = await ask(services, DESCRIBE, 3, **EVERYTHING)
        deleted = await ask(services, DELETE, 3, filters=[EVERYTHING])
    ((resource,), ((removed,),)) = answer.resources, [result.matching_acls for result in deleted.filter_results]
    (acl,) = resource.acls
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (5, "orders", 4)
    assert (acl.principal, acl.host, acl.operation, acl.permission_type) == ("User:alice", "::1", 15, 2)
    assert (removed.resource_type, removed.resource_name, removed.pattern_type) == (5, "orders", 4)
    assert (removed.principal, removed.host, removed.operation, removed.permission_type) == ("User:alice", "::1", 15, 2)


async def test_an_acl_that_is_there_is_a_success() -> None:
    async with serving() as services:
        assert await create(services, {}, {}) == [ErrorCode.none] * 2
        assert await create(services, {}) == [ErrorCode.none]
        assert len(services.state.acls) == 1


WRONG: list[tuple[Mapping[str, object], ErrorCode, str]] = [
    ({"resource_type": ANY}, ErrorCode.invalid_request, "Invalid resourceType ANY"),
    ({"resource_type": UNKNOWN}, ErrorCode.invalid_request, "Invalid resourceType UNKNOWN"),
    ({"resource_type": 99}, ErrorCode.invalid_request, "Invalid resourceType UNKNOWN"),
    ({"resource_pattern_type": ANY}, ErrorCode.invalid_request, "Invalid patternType ANY"),
    ({"resource_pattern_type": 2}, ErrorCode.invalid_request, "Invalid patternType MATCH"),
    ({"operation": ANY}, ErrorCode.invalid_request, "Invalid operation ANY"),
    ({"permission_type": ANY}, ErrorCode.invalid_request, "Invalid permissionType ANY"),
    ({"resource_name": ""}, ErrorCode.invalid_request, "empty"),
    ({"host": ""}, ErrorCode.invalid_request, "Host should not be empty"),
    ({"resource_type": 4}, ErrorCode.invalid_request, "kafka-cluster"),
    ({"principal": "alice"}, ErrorCode.invalid_request, "Could not parse principal from `alice`"),
    ({"principal": "User:" + "a" * SECURITY_NAME_CHARS_MAX}, ErrorCode.policy_violation, "1029 characters"),
    ({"resource_name": "a" * (SECURITY_NAME_CHARS_MAX + 1)}, ErrorCode.policy_violation, "1025 characters"),
]


@pytest.mark.parametrize(("change", "error_code", "message"), WRONG)
async def test_what_is_no_acl_has_an_error_and_the_others_are_created(
    change: Mapping[str, object], error_code: ErrorCode, message: str
) -> None:
    async with serving() as services:
        answer = await ask(services, CREATE, 3, creations=[{**BINDING, **change}, BINDING])
        assert [result.error_code for result in answer.results] == [error_code, ErrorCode.none]
        assert message in answer.results[0].error_message
        assert len(services.state.acls) == 1


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
async def test_a_filter_with_an_unknown_code_fits_nothing(field: str) -> None:
    async with serving() as services:
        await create(services, {})
        deleted = await ask(services, DELETE, 3, filters=[{**EVERYTHING, field: 77}, EVERYTHING])
        asked = await ask(services, DESCRIBE, 3, **{**EVERYTHING, field: UNKNOWN})
    assert [result.error_code for result in deleted.filter_results] == [ErrorCode.invalid_request, ErrorCode.none]
    assert [len(result.matching_acls) for result in deleted.filter_results] == [0, 1]
    assert (asked.error_code, asked.resources) == (ErrorCode.invalid_request, ())


async def test_beyond_the_limit_of_the_cluster_each_has_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_security, "ACLS_MAX", 1)
    async with serving() as services:
        assert await create(services, {}, {"operation": 4}) == [ErrorCode.policy_violation] * 2
        assert await create(services, {}) == [ErrorCode.none]


async def test_many_acls_are_created_in_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_changes, "SECURITY_ROWS_PER_ENTRY_MAX", 2)
    async with serving() as services:
        names = [{"resource_name": f"t{number}"} for number in range(5)]
        position = services.state.appends_count
        assert await create(services, *names) == [ErrorCode.none] * 5
        assert services.state.appends_count == position + 3


def test_an_entry_is_full_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_changes, "SECURITY_ENTRY_BYTES_MAX", 10)
    assert list(entry_batches([("a", 5), ("b", 5), ("c", 1), ("d", 99), ("e", 1)])) == [["a", "b"], ["c"], ["d"], ["e"]]
    assert list(entry_batches([])) == []


async def test_before_the_rules_have_them_they_cannot_be_created() -> None:
    async with serving() as services:
        services.state.rules_version = RULES_CHECKED_ENTRIES
        assert await create(services, {}) == [ErrorCode.unsupported_version]


async def test_without_the_ledger_requests_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> None:
        raise LedgerUnavailable("away")

    async with stalled(Impatient()) as without_authorizer:
        authorizer = Authorizer(
            AuthorizerSettings(is_enabled=True),
            acls=StateAcls(without_authorizer.ledger),
            ledger=without_authorizer.ledger,
            clock=without_authorizer.clock,
            metrics=without_authorizer.metrics,
        )
        services = replace(without_authorizer, authorizer=authorizer)
        assert await create(services, {}) == [ErrorCode.request_timed_out]
        deleted = await ask(services, DELETE, 3, filters=[EVERYTHING])
        assert [result.error_code for result in deleted.filter_results] == [ErrorCode.request_timed_out]
        monkeypatch.setattr(services.ledger, "barrier", away)
        asked = await ask(services, DESCRIBE, 3, **EVERYTHING)
        assert asked.error_code is ErrorCode.request_timed_out
