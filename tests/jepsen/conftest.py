"""Brokers behind a proxy that knows Kafka's requests: they advertise the proxy's address to clients.

A run has one of each, so the tests that use them are one group. No test ends one, and each has a topic of its own.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.jepsen.kafka import KafkaProcess
from tests.jepsen.proxy.proxy import KafkaProxy
from tests.support.ports import free_port
from tests.support.processes import provided
from tests.support.services.local_services import PENSTOCK, PenstockFactory


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProxy]:
    """The proxy before a broker of Apache Kafka."""
    with ExitStack() as stack:
        proxies: list[KafkaProxy] = []

        def advertise(port: int) -> int:
            proxies.append(stack.enter_context(KafkaProxy(port)))
            return proxies[0].port

        stack.enter_context(KafkaProcess(tmp_path_factory.mktemp("proxied") / "kafka", advertise=advertise))
        yield proxies[0]


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProxy]:
    """The proxy before a broker of Penstock."""
    provided(PENSTOCK)
    port = free_port()
    with ExitStack() as stack:
        proxy = stack.enter_context(KafkaProxy(port))
        start = PenstockFactory(folder=tmp_path_factory.mktemp("proxied"), stack=stack)
        start(listen=f"127.0.0.1:{port}", options={"advertise": f"127.0.0.1:{proxy.port}"})
        yield proxy
