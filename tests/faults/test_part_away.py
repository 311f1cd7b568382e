"""etcd or the object store away for a while: agents stay up, clients are told to try again, and everything resumes.

Rule: an agent that is started meanwhile comes up when the part is back. Nobody touches an agent in between.
"""

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.errors import ErrorCode
from protocol.limits import OUTAGE_REMINDER_SECONDS
from tests.torture.direct_reader import direct_reader
from tests.torture.history import Value
from tests.torture.schedule import AGENTS, Act, Fault
from tests.torture.world import World

TOPIC = "away"
PRODUCE_TIMEOUT_MS = 700
RESUME_SECONDS_MAX = 60.0

pytestmark = pytest.mark.timeout(300)


def create_topic(world: World) -> None:
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 1)]).values():
        future.result(60)


class Numbers:
    """Produces 0, 1, 2, ... through any agent, and knows which were acknowledged at which offsets."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sent = 0
        self.acknowledged: dict[Value, int] = {}

    def send(self, agent: str) -> ErrorCode:
        value = Value("p", 0, self.sent)
        self.sent += 1
        with direct_reader(self._world.direct(agent), TOPIC, 1) as connection:
            error_code, offset = connection.produce(value, timeout_ms=PRODUCE_TIMEOUT_MS)
        if error_code is ErrorCode.none:
            self.acknowledged[value] = offset
        else:
            assert offset == -1, f"{error_code} with base offset {offset}"
        return error_code

    def send_until_acknowledged(self, agent: str) -> None:
        deadline = time.monotonic() + RESUME_SECONDS_MAX
        while (error_code := self.send(agent)) is not ErrorCode.none:
            assert error_code.retriable
            assert time.monotonic() < deadline, f"agent {agent} still answers {error_code}"


def live_through(folder: Path, part: str, act: Act, seconds: float) -> None:
    with World(folder, 1) as world:
        create_topic(world)
        numbers = Numbers(world)
        for agent in AGENTS:
            numbers.send_until_acknowledged(agent)
        stopped = Fault(what="", part="agent c", seconds=0, act=Act.STOP)
        world.begin(stopped)
        outage = Fault(what="", part=part, seconds=seconds, act=act)
        world.begin(outage)
        world.end(stopped)  # it is started while the part is away
        deadline = time.monotonic() + seconds
        codes = [numbers.send(agent) for agent in ("a", "b")]
        while time.monotonic() < deadline:
            codes += [numbers.send(agent) for agent in ("a", "b")]
        assert ErrorCode.none not in codes
        assert all(code.retriable for code in codes), set(codes)
        assert world.not_serving() == ["c"]
        world.end(outage)
        world.agents["c"].wait_ready()
        for agent in AGENTS:
            numbers.send_until_acknowledged(agent)
        assert world.died() == []
        check_log(world, numbers)
        check_told(world, part)


def check_log(world: World, numbers: Numbers) -> None:
    """Through each agent: all that was acknowledged, at its offset; of what timed out each at most once."""
    logs = []
    for agent in AGENTS:
        with direct_reader(world.direct(agent), TOPIC, 1) as reader:
            logs.append(reader.read_all())
    assert logs[0] == logs[1] == logs[2]
    offsets = {read.value: read.offset for read in logs[0]}
    assert len(offsets) == len(logs[0])
    assert numbers.acknowledged.items() <= offsets.items()


def check_told(world: World, part: str) -> None:
    """An outage of etcd is told by each agent that lived through it once, not by each of its tasks and requests."""
    if part != "etcd all":
        return
    for agent in ("a", "b"):
        running = world.agents[agent].running
        assert running is not None
        lines = running.process.stderr.splitlines()
        begun = [line for line in lines if "the ledger does not answer" in line]
        assert begun
        assert len(begun) - 1 <= float(begun[-1].rpartition(" seconds=")[2]) / OUTAGE_REMINDER_SECONDS, begun
        assert sum("the ledger answers again" in line for line in lines) == 1, lines
        assert [line for line in lines if "LedgerUnavailable" in line] == []


@pytest.mark.slow  # test_bufstream_faults pauses etcd; agents wait for it in test_agent_on_etcd
@pytest.mark.parametrize("part", ["etcd all", "store"])
@pytest.mark.parametrize("act", [pytest.param(Act.KILL, id="killed"), pytest.param(Act.PAUSE, id="paused")])
def test_a_part_is_away_for_longer_than_a_lease(tmp_path: Path, part: str, act: Act) -> None:
    live_through(tmp_path, part, act, 13)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["etcd all", "store"])
def test_a_part_is_away_for_a_minute(tmp_path: Path, part: str) -> None:
    live_through(tmp_path, part, Act.KILL, 60)
