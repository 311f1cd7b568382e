"""What costs a member of a group its place, and when it may be told (safety rule S4)."""

import asyncio

import pytest

from agent.group_ledger import GroupLedger, NotCoordinator
from agent.group_refusals import check_confirmed, costs_place
from protocol.errors import ErrorCode
from protocol.types import Position
from tests.unit.agent.handlers.group_offsets import Impatient
from tests.unit.agent.ledger_parts import running_parts


@pytest.mark.parametrize(
    "error_code",
    [
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.fenced_instance_id,
        ErrorCode.fenced_member_epoch,
        ErrorCode.stale_member_epoch,
        ErrorCode.unreleased_instance_id,
        ErrorCode.group_id_not_found,
        ErrorCode.inconsistent_group_protocol,
        ErrorCode.group_max_size_reached,
    ],
)
def test_what_ends_a_membership_costs_a_place(error_code: ErrorCode) -> None:
    assert costs_place(error_code)


@pytest.mark.parametrize(
    "error_code",
    [
        ErrorCode.none,
        ErrorCode.rebalance_in_progress,
        ErrorCode.member_id_required,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
    ],
)
def test_what_makes_a_member_ask_or_join_again_costs_none(error_code: ErrorCode) -> None:
    assert not costs_place(error_code)


async def test_s4_a_barrier_that_does_not_come_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts:
        ledger = GroupLedger(metadata=parts.metadata, writer=parts.writer, clock=parts.clock)
        claimed = await ledger.claim("g")
        begun: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(parts.metadata, "begin_barrier", lambda: begun)
        with pytest.raises(NotCoordinator) as caught:
            await check_confirmed(ledger, Impatient(), "g", claimed.claim_epoch)
        assert caught.value.error_code is ErrorCode.coordinator_not_available
        begun.set_result(parts.metadata.state.position)
        await asyncio.sleep(0)
