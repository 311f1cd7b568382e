"""Agents that the tests of a module share: tests that end no agent and damage nothing.

Rule: a start takes more than a second of a processor, so each choice of settings has one broker, or one cluster of
three, for all tests of a module. Each test takes topics, groups and transactional ids of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import pytest

from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.processes import provided
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import PENSTOCK, Minio, Penstock, PenstockFactory

Choice = Mapping[str, str] | None
SharedBroker = Callable[..., Penstock]
"""`shared_broker(settings=..., options=...)`: the module's broker with these broker configs and options."""
SharedCluster = Callable[..., Sequence[ClusterAgent]]
"""`shared_cluster(settings=..., options=...)`: the agents a, b and c of the module's cluster with these."""


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    """Brokers of the module, each started when a test first asks for it."""
    provided(PENSTOCK)
    with ExitStack() as stack:
        start = PenstockFactory(folder=tmp_path_factory.mktemp("shared"), stack=stack)
        brokers: dict[tuple[frozenset[tuple[str, str]], ...], Penstock] = {}

        def shared(*, settings: Choice = None, options: Choice = None) -> Penstock:
            key = _key(settings, options)
            if key not in brokers:
                brokers[key] = start(settings=settings, options=options)
            return brokers[key]

        yield shared


@pytest.fixture(scope="module")
def shared_cluster(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedCluster]:
    """Clusters of three agents of the module, each started when a test first asks for it."""
    provided(PENSTOCK)
    with ExitStack() as stack:
        make = ClusterFactory(etcd=etcd, minio=minio, folder=tmp_path_factory.mktemp("shared"), stack=stack)
        clusters: dict[tuple[frozenset[tuple[str, str]], ...], list[ClusterAgent]] = {}

        def shared(*, settings: Choice = None, options: Choice = None) -> Sequence[ClusterAgent]:
            key = _key(settings, options)
            if key not in clusters:
                cluster = make()
                clusters[key] = [cluster.start(name, settings=settings, options=options) for name in ("a", "b", "c")]
            return clusters[key]

        yield shared


def _key(*choices: Choice) -> tuple[frozenset[tuple[str, str]], ...]:
    return tuple(frozenset((choice or {}).items()) for choice in choices)
