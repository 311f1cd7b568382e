"""Safety rule S7 does no harm: V1 clients whose connections are cut at any point of a transaction finish it, once.

Rule: at every point means before each kind of request of a transaction reaches the agent, and after it did, before its
answer reaches the client, several times over; and each agent is drained, ended and started again while a transaction is
open. No client ever gets an error that is fatal to it; what is committed is read once, at read_committed.
"""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.jepsen.proxy.frames import Api
from tests.jepsen.proxy.proxy import KafkaProxy
from tests.jepsen.proxy.rules import Act, Rule, Side
from tests.support.client_libraries.transactions import CLIENTS, Transactions
from tests.support.clients.transactional_client import COMMITTED, NONE, Connection, connected, coordinator_of
from tests.support.cluster.cluster import ClusterFactory
from tests.support.cluster.faults import create_topic, metric
from tests.support.cluster.faults import start as start_agent
from tests.support.ports import free_port
from tests.support.services.local_services import Penstock, PenstockFactory

TOPIC, GROUP = "reconnects", "group"
PARTITIONS = 2
CUTS = 2
POINTS = [(api, side) for api in Api for side in Side]
AT_BEGIN = Api.INIT_PRODUCER_ID

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning"
    ),  # kafka-python leaves sockets that were refused to themselves
]


class Behind:
    """One broker behind a proxy whose address it tells its clients; it may be started again."""

    def __init__(self, penstock: PenstockFactory, proxy: KafkaProxy, port: int, folder: Path) -> None:
        self._penstock, self._port, self._folder = penstock, port, folder
        self.proxy = proxy
        self.broker = self._start()
        create_topic(self.broker, TOPIC, PARTITIONS)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"

    @property
    def direct(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start_again(self, *, is_killed: bool) -> None:
        if is_killed:
            self.broker.process.kill()
        else:
            assert self.broker.process.stop() == 0
        self.broker = self._start()

    def _start(self) -> Penstock:
        options = {"advertise": self.bootstrap, "flush-interval-ms": "5"}
        return self._penstock(listen=self.direct, options=options, data=self._folder / "data")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """What clients leave to the garbage collector is collected before the next test."""
    yield
    gc.collect()


@pytest.fixture
def behind(penstock: PenstockFactory, tmp_path: Path) -> Iterator[Behind]:
    port = free_port()
    with KafkaProxy(port) as proxy:
        yield Behind(penstock, proxy, port, tmp_path)


class Runs:
    """One transaction after the other."""

    def __init__(self, producer: Transactions, group: str | None) -> None:
        self._producer = producer
        self._group = group
        self.count = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            self._producer.run(TOPIC, values_of(self.count), self._group, self.count)
            self.count += 1

    def more(self) -> Callable[[], bool]:
        """Whether two have ended since this was called."""
        wanted = self.count + 2
        return lambda: self.count >= wanted


def values_of(number: int) -> list[bytes]:
    return [b"%d-%d" % (number, partition) for partition in range(PARTITIONS)]


def check_once(through: Connection, coordinator: Connection, count: int) -> None:
    """Every value of so many transactions stands there once, in order, and the group has come to the last."""
    check_values_once(through, count)
    assert coordinator.committed(GROUP, is_stable=True) == (NONE, count - 1)


def check_values_once(through: Connection, count: int) -> None:
    for partition in range(PARTITIONS):
        assert through.values(partition, COMMITTED) == [values_of(number)[partition] for number in range(count)]


def begun_while_cut(behind: Behind, client: str, side: Side) -> Transactions:
    """A producer whose connections were cut while it was initialised."""
    rule = Rule(act=Act.DROP, api_key=AT_BEGIN, side=side, times_max=CUTS)
    behind.proxy.add(rule)
    producer = CLIENTS[client](behind.bootstrap, "x")
    behind.proxy.wait_struck(rule)
    return producer


@pytest.mark.parametrize(
    "client", [pytest.param(name, marks=pytest.mark.slow) if name == "aiokafka" else name for name in CLIENTS]
)
def test_s7_a_v1_client_finishes_its_transactions_wherever_its_connections_are_cut(behind: Behind, client: str) -> None:
    first = begun_while_cut(behind, client, Side.REQUEST)
    first.run(TOPIC, values_of(0), GROUP, 0)
    first.close()
    producer = begun_while_cut(behind, client, Side.ANSWER)
    count = 1
    for api, side in (point for point in POINTS if point[0] is not AT_BEGIN):
        rule = Rule(act=Act.DROP, api_key=api, side=side, times_max=CUTS)
        behind.proxy.add(rule)
        producer.run(TOPIC, values_of(count), GROUP, count)
        behind.proxy.wait_struck(rule)
        behind.proxy.remove(rule)
        count += 1
    producer.run(TOPIC, values_of(count), GROUP, count)
    producer.close()
    with connected(behind.direct, TOPIC) as through:
        check_once(through, through, count + 1)
        assert through.state_of("x") == "CompleteCommit"


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_s7_a_v1_client_finishes_its_transactions_while_its_broker_is_started_again(
    behind: Behind, client: str
) -> None:
    producer = CLIENTS[client](behind.bootstrap, "x")
    producer.run(TOPIC, values_of(0), GROUP, 0)
    count = 1
    for api in (api for api in Api if api is not AT_BEGIN):
        rule = Rule(act=Act.HOLD, api_key=api)
        behind.proxy.add(rule)
        running = threading.Thread(target=producer.run, args=(TOPIC, values_of(count), GROUP, count))
        running.start()
        held = behind.proxy.wait_struck(rule)
        behind.start_again(is_killed=count % 2 == 0)
        behind.proxy.release(held)
        running.join(120)
        assert not running.is_alive(), f"it waits for ever after {api.name}"
        count += 1
    producer.close()
    with connected(behind.direct, TOPIC) as through:
        check_once(through, through, count)


@pytest.mark.slow
@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_s7_a_v1_client_finishes_its_transactions_while_three_agents_are_drained_in_turn(
    clusters: ClusterFactory, client: str
) -> None:
    """An agent that leaves is not in the cluster's metadata for a while, as in Kafka, which two clients do not survive
    as coordinator: librdkafka 2.16 waits with a group's offsets until the transaction's time is over, for a broker that
    it has dropped; so it commits none here. kafka-python 3.0 may drop the request that it could not send, and waits for
    its answer indefinitely; so it is not here.
    """
    group = None if client == "confluent" else GROUP
    cluster = clusters()
    addresses = {name: f"127.0.0.1:{free_port()}" for name in ("a", "b", "c")}
    agents = {name: start_agent(cluster, name, listen=address) for name, address in addresses.items()}
    create_topic(agents["a"], TOPIC, PARTITIONS)
    producer = CLIENTS[client](",".join(addresses.values()), "x")
    runs = Runs(producer, group)
    running = threading.Thread(target=runs.run)
    running.start()
    for name, address in addresses.items():
        agents[name].process.wait_until(runs.more(), "transactions")
        assert agents[name].process.stop() == 0
        agents[name] = start_agent(cluster, name, listen=address)
    agents["a"].process.wait_until(runs.more(), "transactions")
    runs.is_over.set()
    running.join(120)
    assert not running.is_alive()
    producer.close()
    with ExitStack() as stack:
        through = [stack.enter_context(connected(agent.bootstrap, TOPIC)) for agent in agents.values()]
        for reader in through:
            check_values_once(reader, runs.count)
        if group is not None:
            check_once(through[0], coordinator_of(group, through), runs.count)
    # A client may go on over a connection to the next coordinator that is older than what it last did elsewhere, as
    # aiokafka does: it is refused there once, connects again, and goes on.
    refused = sum(metric(agent, "penstock_transactions_fenced_requests_total") for agent in agents.values())
    assert refused <= (len(addresses) if client == "aiokafka" else 0)
