"""Safety rule S11 on a running agent: each row of the table in docs/compatibility.md, by real requests in its versions.

Rule: the rows are those of `tests/unit/txn/test_late_producers.py`, which holds the document against them. Every
request of a row has a transactional id to itself. Transactions that time out are opened all together, before any is
asked about, so that their time passes once.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pytest

from tests.support.clients.transactional_client import Connection, Producer, connected
from tests.support.cluster.faults import create_topic
from tests.support.processes import provided
from tests.support.services.local_services import PENSTOCK, PenstockFactory
from tests.support.transactions.conversations import TIME_OUT, Step
from tests.support.transactions.late_producers import HISTORIES, ROWS, Row, as_written

TOPIC = "late"
SHORT, LONG = timedelta(milliseconds=500), timedelta(seconds=60)
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
GROUP = "group"

CASES = [(row, step) for row in ROWS for step in row.steps]

pytestmark = pytest.mark.timeout(240)


@dataclass(slots=True)
class Asked:
    """One transactional id on one agent: a coordinator as `tests.support.transactions.conversations` has one."""

    through: Connection
    transactional_id: str
    timeout: timedelta
    producer: Producer = field(init=False)
    """As InitProducerId gave it last."""
    sequences: Counter[int] = field(default_factory=Counter[int])
    """Of each epoch: how many batches it has sent."""

    def __post_init__(self) -> None:
        self.producer = Producer(self.transactional_id)

    def answer(self, step: Step) -> tuple[int, ...]:
        """Error code; and the epoch, where the answer has one."""
        version, by = step.version, self.producer._replace(epoch=step.epoch)
        match step.name:
            case "init":
                return self._init(version, by)
            case "commit" | "abort":
                code, following = self.through.end(by, is_commit=step.name == "commit", version=version)
                return (code,) if following is None else (code, following.epoch)
            case _:
                return (self._code(step, by),)

    def _init(self, version: int, by: Producer) -> tuple[int, int]:
        was = by if by.epoch >= 0 else None
        code, given = self.through.init(self.transactional_id, version, producer=was, timeout=self.timeout)
        assert given is not None
        if not code:
            self.producer = given
        return code, given.epoch

    def _code(self, step: Step, by: Producer) -> int:
        match step.name:
            case "add":
                return self.through.add(by, version=step.version)
            case "add offsets":
                return self.through.add_offsets(by, GROUP, step.version)
            case "offsets":
                (code,) = self.through.commit_offsets(by, GROUP, {0: 1}, step.version)
                return code
            case "tool":
                return self.through.abort_by_tool(self.producer)
            case _:
                code, _ = self.through.produce(by, self.sequences[by.epoch], b"v", version=step.version)
                self.sequences[by.epoch] += not code
                return code


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Asked]]:
    """A coordinator for each case, to which what the row tells has happened."""
    provided(PENSTOCK)
    with ExitStack() as stack:
        factory = PenstockFactory(folder=tmp_path_factory.mktemp("late"), stack=stack)
        agent = factory(settings=SETTINGS, options={"flush-interval-ms": "5"})
        create_topic(agent, TOPIC, 1)
        through = stack.enter_context(connected(agent.bootstrap, TOPIC))
        agent.process.wait_until(lambda: not through.committed(GROUP)[0], "a coordinator of the group")
        asked = [_before(through, f"id-{number}", row) for number, (row, _) in enumerate(CASES)]
        for name in (each.transactional_id for each in asked if each.timeout is SHORT):
            agent.process.wait_until(partial(_is_timed_out, through, name), "a time-out")
        yield asked


def _is_timed_out(through: Connection, transactional_id: str) -> bool:
    return through.state_of(transactional_id) == "CompleteAbort"


def _before(through: Connection, transactional_id: str, row: Row) -> Asked:
    history = HISTORIES[row.history]
    asked = Asked(through, transactional_id, SHORT if TIME_OUT in history else LONG)
    assert TIME_OUT not in history[:-1], "it is waited for in the end"
    for step in history:
        if step is not TIME_OUT:
            asked.answer(step)
    return asked


@pytest.mark.parametrize(
    "number", range(len(CASES)), ids=[f"{row.history}: {step.name} {step.version}" for row, step in CASES]
)
def test_s11_a_late_producer_is_answered_by_an_agent_as_the_table_says(asked: list[Asked], number: int) -> None:
    row, step = CASES[number]
    assert as_written(asked[number].answer(step)) == row.penstock
