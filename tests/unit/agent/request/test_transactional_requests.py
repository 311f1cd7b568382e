"""What is not known to be decided is never told as a success: clients ask again."""

import asyncio

import pytest

from agent.request.services import Services
from coordinator.commands.commands import Outcome, Rejected
from coordinator.ledger.port import OutcomeUnknown
from protocol.errors import ErrorCode
from tests.support.handlers.transactions import add, add_group, begun, end, init, serving

ASKED_AGAIN = ErrorCode.coordinator_not_available


def answer_by(services: Services, monkeypatch: pytest.MonkeyPatch, outcome: Outcome | Exception) -> None:
    """The ledger says this of everything from now on."""

    def propose(_command: object) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
        return future

    monkeypatch.setattr(services.ledger, "propose", propose)


@pytest.mark.parametrize(
    ("outcome", "error_code"),
    [
        (OutcomeUnknown("the session ended"), ASKED_AGAIN),
        (Rejected(error_code=ErrorCode.request_timed_out, reason="too many wait"), ASKED_AGAIN),
        (Rejected(error_code=ErrorCode.policy_violation, reason="too many ids"), ErrorCode.policy_violation),
    ],
)
@pytest.mark.parametrize("version", [3, 5])
async def test_s1_what_the_ledger_does_not_tell_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, outcome: Outcome | Exception, error_code: ErrorCode, version: int
) -> None:
    async with serving() as services:
        producer = await begun(services)
        answer_by(services, monkeypatch, outcome)
        told = [await init(services), await end(services, producer, version)]
        assert [answer.error_code for answer in told] == [error_code] * 2
        assert await add(services, producer) == {("t", 0): error_code}
        assert await add_group(services, producer) is error_code
        monkeypatch.undo()
        assert (await end(services, producer)).error_code is ErrorCode.invalid_txn_state


async def test_clients_of_an_agent_that_stops_are_sent_to_another_coordinator() -> None:
    async with serving() as services:
        producer = await begun(services)
        await add(services, producer)
        services.draining.begin()
        services.draining.announce()
        told = [await end(services, producer, version) for version in (3, 5)]
        assert [answer.error_code for answer in told] == [ErrorCode.not_coordinator] * 2
        assert await add(services, producer) == {("t", 0): ErrorCode.not_coordinator}
        assert await add_group(services, producer) is ErrorCode.not_coordinator
        assert services.state.transactional_ids["x"].metadata.is_ongoing
