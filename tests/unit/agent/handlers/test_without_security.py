"""While nothing is authenticated or authorised, tools are told so, in Kafka's words for it."""

import asyncio
import struct
from collections.abc import Mapping
from datetime import timedelta

import pytest

from protocol.errors import ErrorCode
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.handlers.handler_client import ask, ask_for_bytes

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN, DESCRIBE_TOKENS = 38, 39, 40, 41
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
FILTER: Mapping[str, object] = {
    "resource_type_filter": 2,
    "resource_name_filter": None,
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 2,
    "permission_type": 3,
}
BINDING: Mapping[str, object] = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:me",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_lists_of_access_need_an_authorizer(version: int) -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        described = await ask(services, DESCRIBE_ACLS, version, **FILTER)
        created = await ask(services, CREATE_ACLS, version, creations=[BINDING, BINDING])
        deleted = await ask(services, DELETE_ACLS, version, filters=[FILTER])
    assert (described.error_code, described.resources) == (ErrorCode.security_disabled, ())
    assert [result.error_code for result in created.results] == [ErrorCode.security_disabled] * 2
    (result,) = deleted.filter_results
    assert (result.error_code, result.matching_acls) == (ErrorCode.security_disabled, ())
    assert {described.error_message, result.error_message} == {"No Authorizer is configured."}


async def test_tokens_are_not_given_to_who_is_not_authenticated() -> None:
    error_code = struct.pack(">h", ErrorCode.delegation_token_request_not_allowed)
    no_time = struct.pack(">q", -1)
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        for version in (1, 2, 3):
            owner = {} if version < 3 else {"owner_principal_type": None, "owner_principal_name": None}
            lifetime = timedelta(milliseconds=-1)
            created = await ask_for_bytes(services, CREATE_TOKEN, version, renewers=[], max_lifetime=lifetime, **owner)
            assert created.startswith(error_code)
            assert created.count(b"ANONYMOUS") == (2 if version == 3 else 1)
            assert no_time * 3 in created
            described = await ask(services, DESCRIBE_TOKENS, version, owners=None)
            assert described.error_code is ErrorCode.delegation_token_request_not_allowed
        for version in (1, 2):
            for api_key, field in ((RENEW_TOKEN, "renew_period"), (EXPIRE_TOKEN, "expiry_time_period")):
                told = await ask_for_bytes(services, api_key, version, hmac=b"x", **{field: timedelta(days=1)})
                assert told.startswith(error_code + no_time)


async def test_who_wants_to_log_in_is_told_that_it_is_in_already() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        for version in (0, 1):
            shaken = await ask(services, SASL_HANDSHAKE, version, mechanism="PLAIN")
            assert (shaken.error_code, shaken.mechanisms) == (ErrorCode.illegal_sasl_state, ())
        for version in (0, 1, 2):
            told = await ask(services, SASL_AUTHENTICATE, version, auth_bytes=b"\0me\0secret")
            assert (told.error_code, told.auth_bytes) == (ErrorCode.illegal_sasl_state, b"")
