"""Each Kafka API without each of its rights, over the wire: denied with Kafka's code, and nothing else is said."""

import pytest

from agent.security.required_rights import REQUIRED_RIGHTS, Right
from protocol.api_versions import ApiKey
from protocol.auth.operations import ResourceType
from tests.security.guarded_agent import EVERYTHING, NOTHING, GuardedAgent, user_without
from tests.security.guarded_requests import (
    AUTHORIZATION_CODES,
    FILTERED,
    GUARDED,
    FilteredRequest,
    GuardedRequest,
    guarded_rights,
)
from tests.support.clients.login_client import error_codes

pytestmark = pytest.mark.xdist_group("guarded agent")


def label_of(row: GuardedRequest | FilteredRequest) -> str:
    return row.label


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_the_table_reaches_every_right_of_every_api(api_key: ApiKey) -> None:
    row = REQUIRED_RIGHTS[api_key]
    whole = {Right(operation, ResourceType.CLUSTER) for operation in row.cluster}
    assert guarded_rights(api_key) == whole | set(row.resources)


@pytest.mark.parametrize("row", GUARDED, ids=label_of)
def test_an_api_without_each_of_its_rights(guarded: GuardedAgent, row: GuardedRequest) -> None:
    values = row.values(guarded.names)
    users = {user_without(need.rights): need.code for need in row.needs} | {NOTHING: row.needs[0].code}
    answers = guarded.ask_all(list(users), row.api_key, row.version, values)
    for (user, code), answer in zip(users.items(), answers, strict=True):
        assert set(error_codes(answer)) - {0} == {code}, (user, answer)
    answer = guarded.ask(EVERYTHING, row.api_key, row.version, values)
    assert not AUTHORIZATION_CODES & set(error_codes(answer)), answer


@pytest.mark.parametrize("row", FILTERED, ids=label_of)
def test_what_may_not_be_seen_is_left_out(guarded: GuardedAgent, row: FilteredRequest) -> None:
    values = row.values(guarded.names)
    users = [user_without(row.rights + row.besides), NOTHING]
    for user, answer in zip(users, guarded.ask_all(users, row.api_key, row.version, values), strict=True):
        assert not row.shown(answer, guarded.names), (user, answer)
    user = user_without(row.besides) if row.besides else EVERYTHING
    assert row.shown(guarded.ask(user, row.api_key, row.version, values), guarded.names)
