"""AddOffsetsToTxn: a group becomes part of a V1 transaction."""

import pytest

from protocol.errors import ErrorCode
from protocol.limits import GROUP_ID_BYTES_MAX
from tests.support.handlers.stalled_ledger import Impatient
from tests.support.handlers.transactions import ID, NONE, add_group, begun, serving, stop_answering


@pytest.mark.parametrize("version", range(5))
async def test_a_group_begins_a_transaction(version: int) -> None:
    async with serving() as services:
        producer = await begun(services)
        assert await add_group(services, producer, version) is NONE
        held = services.state.transactional_ids[ID]
        assert (held.metadata.is_ongoing, list(held.groups)) == (True, ["g"])


async def test_who_may_not_is_told_in_words_of_the_version() -> None:
    async with serving() as services:
        first = await begun(services)
        second = await begun(services)
        assert await add_group(services, first, 3) is ErrorCode.producer_fenced
        assert await add_group(services, first, 1) is ErrorCode.invalid_producer_epoch
        assert await add_group(services, second.another) is ErrorCode.invalid_producer_id_mapping
        assert await add_group(services, second, transactional_id="y") is ErrorCode.invalid_producer_id_mapping
        assert await add_group(services, second, transactional_id="") is ErrorCode.invalid_request
        assert await add_group(services, second, group="g" * (GROUP_ID_BYTES_MAX + 1)) is ErrorCode.invalid_group_id
        assert await add_group(services, second, group="") is NONE


async def test_a_ledger_that_does_not_answer_in_time_is_asked_again() -> None:
    async with serving(clock=Impatient()) as services:
        producer = await begun(services)
        stop_answering(services)
        assert await add_group(services, producer) is ErrorCode.coordinator_not_available
