"""What scenarios of several agents share."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.cluster.cluster import ClusterAgent
from tests.support.cluster.faults import create_topic, three_agents
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import Minio

topic_numbers = itertools.count()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What is to be closed when the test ends."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd that a test may pause."""
    with Etcd(tmp_path / "etcd") as etcd:
        yield etcd


@pytest.fixture(scope="session")
def agents(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterAgent]]:
    """Three agents of one cluster that no test may end: for all scenarios that end none."""
    with three_agents(etcd, minio, tmp_path_factory.mktemp("agents")) as agents:
        yield agents


@pytest.fixture
def topic(agents: list[ClusterAgent]) -> str:
    """A topic of these agents for the test alone, with two partitions."""
    name = f"topic-{next(topic_numbers)}"
    create_topic(agents[0], name, 2)
    return name
