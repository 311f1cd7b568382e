"""Groups of four client libraries while agents are restarted in order, behind one address and with one for each agent.

Rule: no record is lost or read twice, and no member gives up a partition.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.client_libraries.group_members import wait_until
from tests.support.client_libraries.groups_by_client import JAVA_SOURCE, library_groups
from tests.support.cluster.cluster import Cluster, ClusterFactory
from tests.support.cluster.one_address import one_address
from tests.support.cluster.relay_listener import RELAY_LISTEN
from tests.support.cluster.rolling_restart_load import SteadyProducer
from tests.support.services.java import JavaProgram

NAMES = ("a", "b", "c")
TOPIC, PARTITIONS = "read", 6
SETTINGS = {"group.initial.rebalance.delay.ms": "300"}


@contextmanager
def restarted_in_order(
    cluster: Cluster, *, has_one_address: bool
) -> Iterator[tuple[str, Callable[[Callable[[], None]], None]]]:
    """Where clients find three agents, and what restarts them one after the other and calls something after each."""
    with ExitStack() as stack:
        address = stack.enter_context(one_address()) if has_one_address else None
        options = {} if address is None else {"listen": RELAY_LISTEN, "advertise": address.bootstrap}
        agents = [cluster.start(name, options=options, settings=SETTINGS) for name in NAMES]
        if address is not None:
            address.agents = [agent.bootstrap for agent in agents]

        def restart(restarted: Callable[[], None]) -> None:
            for agent in agents:
                assert cluster.agents[agent.name].process.stop() == 0
                cluster.start(agent.name, options=options, settings=SETTINGS, listen=agent.bootstrap)
                restarted()

        yield ",".join(agent.bootstrap for agent in agents) if address is None else address.bootstrap, restart


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("has_one_address", [True, False], ids=["one address", "an address each"])
def test_groups_count_every_record_through_a_rolling_restart(
    clusters: ClusterFactory, compile_java: Callable[[Path], JavaProgram], tmp_path: Path, *, has_one_address: bool
) -> None:
    program = compile_java(JAVA_SOURCE)
    with restarted_in_order(clusters(), has_one_address=has_one_address) as (bootstrap, restart), ExitStack() as stack:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (created,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values()
        created.result(30)
        groups = library_groups(bootstrap, TOPIC, PARTITIONS, program=program, folder=tmp_path)
        began_s = time.monotonic()
        for member in chain(*(group.members for group in groups)):
            stack.enter_context(member)
        for group in groups:
            wait_until(group.is_shared_out, f"the shares of {group.name}")
        print(f"all groups are shared out after {time.monotonic() - began_s:.1f} s")
        idempotent = {"enable.idempotence": True}
        with SteadyProducer(
            bootstrap=bootstrap, topic=TOPIC, partitions=PARTITIONS, rate=100, settings=idempotent
        ) as producer:
            wait_until(lambda: all(group.read for group in groups), "the first records")
            before = {group.name: group.losses_count for group in groups}

            def catch_up() -> None:
                count = producer.acknowledged_count
                for group in groups:
                    wait_until(partial(group.has_read, count), f"{count} records of {group.name}")

            restart(catch_up)
        assert producer.errors == []
        sent = producer.acknowledged_count
        for group in groups:
            wait_until(partial(group.has_read, sent), f"all records of {group.name}")
            assert len(set(group.read)) == sent
            again, losses = len(group.read) - sent, group.losses_count - before[group.name]
            print(f"{group.name}: {sent} records, {again} again, {losses} partitions given up")
            assert (again, losses) == (0, 0), group.name
