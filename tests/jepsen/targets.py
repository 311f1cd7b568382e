"""What the clients of a run talk to: Penstock under every fault, a real Apache Kafka, or librdkafka's mock cluster.

Rule: a target is used in a `with` block and leaves nothing behind. Its faults come from the torture run's schedule
(`tests.torture.schedule`); where that names links, the torture run's world has them.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.jepsen.kafka import KafkaProcess
from tests.jepsen.proxy.message_faults import message_fault
from tests.jepsen.proxy.proxy import KafkaProxy
from tests.jepsen.proxy.rules import Rule
from tests.jepsen.workload.generator import PARTITIONS
from tests.torture.schedule import Act, Fault, Slot, schedule
from tests.torture.world import World

ADMIN_SECONDS_MAX = 60.0
KAFKA_DOWN_SECONDS = 3.0


class Target(ABC):
    """`bootstrap` is what clients connect to."""

    bootstrap: str

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.proxies: list[KafkaProxy] = []
        """What stands before the agents and can do something to single messages."""
        self._disturbed: tuple[KafkaProxy, Rule] | None = None

    def __enter__(self) -> Self:
        try:
            self.bootstrap = self.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    @abstractmethod
    def start(self) -> str:
        """Returns the bootstrap addresses once it serves."""

    def faults(self, seed: int) -> Iterator[Slot]:
        """Slots without end, or none."""
        del seed
        return iter(())

    def begin(self, fault: Fault) -> None:
        raise NotImplementedError

    def end(self, fault: Fault) -> None:
        raise NotImplementedError

    def is_serving(self) -> bool:
        """Whether all of it runs again after faults."""
        return True

    def died(self) -> list[str]:
        """Parts that ended although nobody ended them."""
        return []

    def tracebacks(self) -> list[str]:
        """Bugs that its logs tell of."""
        return []

    def disturb(self, chance: random.Random) -> None:
        """Do something to one message; what was done to the last one is over."""
        self.calm()
        if self.proxies:
            self._disturbed = proxy, rule = chance.choice(self.proxies), message_fault(chance)
            proxy.add(rule)

    def calm(self) -> None:
        """Let every message pass from now on."""
        if self._disturbed is not None:
            proxy, rule = self._disturbed
            proxy.remove(rule)

    def front(self, port: int) -> int:
        """Stand before a port by a proxy; returns the proxy's."""
        self.proxies.append(self._stack.enter_context(KafkaProxy(port)))
        return self.proxies[-1].port

    def create_topic(self, name: str, configs: Mapping[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for future in admin.create_topics(
            [NewTopic(name, PARTITIONS, config=dict(configs))], operation_timeout=ADMIN_SECONDS_MAX
        ).values():
            future.result(ADMIN_SECONDS_MAX)


class PenstockTarget(Target):
    """Three agents, three etcd members, MinIO, and a proxy on every link; two before each agent."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__()
        self._folder, self._seed = folder, seed

    def start(self) -> str:
        self._world = self._stack.enter_context(World(self._folder, self._seed, self.front))
        return self._world.bootstrap

    def faults(self, seed: int) -> Iterator[Slot]:
        return schedule(seed)

    def begin(self, fault: Fault) -> None:
        self._world.begin(fault)

    def end(self, fault: Fault) -> None:
        self._world.end(fault)

    def is_serving(self) -> bool:
        return not self._world.not_serving()

    def died(self) -> list[str]:
        return self._world.died()

    def tracebacks(self) -> list[str]:
        return self._world.tracebacks()


class KafkaTarget(Target):
    """One broker of Apache Kafka: the positive control. Its fault is to be killed and started again.

    It does not wait for the disk, but the machine stays up, so nothing that it acknowledged is lost.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def start(self) -> str:
        self._server = self._stack.enter_context(KafkaProcess(self._folder))
        return self._server.bootstrap

    def faults(self, seed: int) -> Iterator[Slot]:
        del seed
        kill = Fault(what=Act.KILL.value, part="kafka", seconds=KAFKA_DOWN_SECONDS, act=Act.KILL)
        while True:
            yield Slot(faults=(kill,))

    def begin(self, fault: Fault) -> None:
        self._server.kill()

    def end(self, fault: Fault) -> None:
        self._server.start()

    def is_serving(self) -> bool:
        return self._server.is_serving


class MockTarget(Target):
    """librdkafka's mock cluster: it speaks transactions, and shows readers what is open or aborted."""

    def start(self) -> str:
        self._keeper = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._keeper.list_topics(timeout=ADMIN_SECONDS_MAX).brokers.values()
        return f"{broker.host}:{broker.port}"

    def create_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """It has no CreateTopics and no configs; it makes a topic when it is asked about one."""
        del configs
        self._keeper.list_topics(name, timeout=ADMIN_SECONDS_MAX)


TARGETS: Mapping[str, Callable[[Path, int], Target]] = {
    "penstock": PenstockTarget,
    "kafka": lambda folder, _seed: KafkaTarget(folder),
    "mock": lambda _folder, _seed: MockTarget(),
}
"""By name; they take a folder of their own and the run's seed."""
