"""The proxy on loopback, before a server that answers each frame with its correlation id and its own count."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.jepsen.proxy.frames import Api
from tests.jepsen.proxy.proxy import KafkaProxy
from tests.jepsen.proxy.rules import Act, Rule, Side

END_TXN, PRODUCE = Api.END_TXN, Api.PRODUCE


class Echo:
    """A server; `seen`: connection and correlation id of each request, in order. Its answers tell how many came."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.seen: list[tuple[int, int]] = []
        self.changed = threading.Condition()
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        for number in range(100):
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(number, connection))
            self.threads.append(thread)
            thread.start()

    def _serve(self, number: int, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as frames:
            while size := frames.read(4):
                frame = frames.read(struct.unpack(">i", size)[0])
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                with self.changed:
                    self.seen.append((number, correlation_id))
                    self.changed.notify_all()
                    count = len(self.seen)
                try:
                    connection.sendall(struct.pack(">iii", 8, correlation_id, count))
                except OSError:
                    return

    def wait_seen(self, count: int) -> list[int]:
        """Correlation ids, once so many requests came."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.seen) >= count, 20)
            return [correlation_id for _, correlation_id in self.seen]

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join()


class Client:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 20)

    def send(self, api_key: int, correlation_id: int) -> None:
        frame = struct.pack(">hhihh", api_key, 1, correlation_id, 0, -1)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def read(self) -> tuple[int, int] | None:
        """Correlation id of the next answer, and how many requests had come; None where the connection was closed."""
        answer = self._socket.recv(12, socket.MSG_WAITALL)
        return struct.unpack(">4xii", answer) if answer else None

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[KafkaProxy]:
    with KafkaProxy(echo.port) as proxy:
        yield proxy


@contextmanager
def connected(proxy: KafkaProxy) -> Iterator[Client]:
    with closing(Client(proxy.port)) as client:
        yield client


def test_everything_passes_in_order_without_rules(proxy: KafkaProxy) -> None:
    with connected(proxy) as client:
        for correlation_id in range(5):
            client.send(PRODUCE, correlation_id)
        assert [client.read() for _ in range(5)] == [(row, row + 1) for row in range(5)]


def test_a_request_that_is_held_waits_and_what_comes_behind_it_too(proxy: KafkaProxy, echo: Echo) -> None:
    rule = Rule(act=Act.HOLD, api_key=END_TXN)
    proxy.add(rule)
    with connected(proxy) as client, connected(proxy) as other:
        client.send(END_TXN, 1)
        strike = proxy.wait_struck(rule)
        client.send(PRODUCE, 2)
        other.send(PRODUCE, 3)
        assert other.read() == (3, 1)
        proxy.release(strike)
        assert [client.read(), client.read()] == [(1, 2), (2, 3)]


def test_a_request_that_is_held_comes_late_although_its_client_hung_up(proxy: KafkaProxy, echo: Echo) -> None:
    rule = Rule(act=Act.HOLD, api_key=END_TXN)
    proxy.add(rule)
    with connected(proxy) as client:
        client.send(END_TXN, 1)
        strike = proxy.wait_struck(rule)
    with connected(proxy) as client:
        client.send(END_TXN, 2)
        assert client.read() == (2, 1)
        proxy.release(strike)
        assert proxy.wait_answered(strike) == struct.pack(">ii", 1, 2)
        client.send(PRODUCE, 3)
        assert client.read() == (3, 3)


def test_something_held_for_some_time_is_released_by_itself(proxy: KafkaProxy) -> None:
    proxy.add(Rule(act=Act.HOLD, api_key=END_TXN, seconds=0.05))
    with connected(proxy) as client:
        client.send(END_TXN, 1)
        assert client.read() == (1, 1)


def test_a_rule_that_is_taken_away_releases_what_it_holds(proxy: KafkaProxy) -> None:
    rule = Rule(act=Act.HOLD, api_key=END_TXN)
    proxy.add(rule)
    with connected(proxy) as client:
        client.send(END_TXN, 1)
        proxy.wait_struck(rule)
        proxy.remove(rule)
        assert client.read() == (1, 1)


def test_an_answer_that_is_held_waits_although_the_request_came(proxy: KafkaProxy, echo: Echo) -> None:
    rule = Rule(act=Act.HOLD, api_key=END_TXN, side=Side.ANSWER)
    proxy.add(rule)
    with connected(proxy) as client, connected(proxy) as other:
        client.send(END_TXN, 1)
        strike = proxy.wait_struck(rule)
        other.send(PRODUCE, 2)
        assert other.read() == (2, 2)
        proxy.release(strike)
        assert client.read() == (1, 1)


@pytest.mark.parametrize(("side", "seen"), [(Side.REQUEST, [2]), (Side.ANSWER, [1, 2])])
def test_what_is_dropped_is_lost_with_its_connection(
    proxy: KafkaProxy, echo: Echo, side: Side, seen: list[int]
) -> None:
    proxy.add(Rule(act=Act.DROP, api_key=END_TXN, side=side))
    with connected(proxy) as client:
        client.send(END_TXN, 1)
        assert client.read() is None
    with connected(proxy) as client:
        client.send(END_TXN, 2)
        assert client.read() == (2, len(seen))
    assert echo.wait_seen(len(seen)) == seen


def test_a_request_comes_twice_and_the_second_answer_is_not_told(proxy: KafkaProxy, echo: Echo) -> None:
    rule = Rule(act=Act.DUPLICATE, api_key=END_TXN)
    proxy.add(rule)
    with connected(proxy) as client:
        client.send(END_TXN, 1)
        assert proxy.wait_answered(proxy.wait_struck(rule)) == struct.pack(">ii", 1, 2)
        client.send(PRODUCE, 2)
        assert [client.read(), client.read()] == [(1, 1), (2, 3)]
    assert echo.wait_seen(3) == [1, 1, 2]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_the_second_copy_may_come_late_on_the_same_connection_or_on_another_one(
    proxy: KafkaProxy, echo: Echo, is_elsewhere: bool
) -> None:
    rule = Rule(act=Act.DUPLICATE, api_key=END_TXN, is_held=True, is_elsewhere=is_elsewhere)
    proxy.add(rule)
    with connected(proxy) as client:
        client.send(END_TXN, 1)
        client.send(PRODUCE, 2)
        assert [client.read(), client.read()] == [(1, 1), (2, 2)]
        strike = proxy.wait_struck(rule)
        proxy.release(strike)
        assert proxy.wait_answered(strike) == struct.pack(">ii", 1, 3)
    assert (echo.seen[2][0] != echo.seen[0][0]) is is_elsewhere


def test_an_end_without_a_release_leaves_nothing_behind(echo: Echo) -> None:
    rule = Rule(act=Act.HOLD, api_key=END_TXN)
    with KafkaProxy(echo.port) as proxy:
        proxy.add(rule)
        with connected(proxy) as client:
            client.send(END_TXN, 1)
            proxy.wait_struck(rule)
    assert echo.seen == []
