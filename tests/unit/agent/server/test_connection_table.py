"""The decisions of the table, over connections without sockets. With sockets: test_server_memory."""

import asyncio

import pytest

from agent.runtime.metrics import Metrics
from agent.server import connection_table
from agent.server.connection_table import ConnectionTable
from protocol.limits import RECEIVE_BUFFER_BYTES, RECEIVE_STALLED_SECONDS_MAX


class StubConnection:
    """Implements `OpenConnection`: fixed numbers, and a list of the methods that were called."""

    listener = "PLAINTEXT"
    peer = "192.0.2.1:5"
    arrived_bytes = 0
    progress_bytes_min = 0
    unread_s = 0.0
    blocking_s = 0.0
    is_idle = True
    is_owed_answer = False

    def __init__(self, *, unread_bytes: int = 0, leaves_buffer: bool = True) -> None:
        self.unread_bytes = unread_bytes
        self.used_s = 0.0
        self.calls: list[str] = []
        self.leaves_buffer = leaves_buffer

    def regulate_reading(self) -> None:
        self.calls.append("regulate")

    def hurry(self) -> None:
        self.calls.append("hurry")

    def leave_buffer(self) -> bool:
        return self.leaves_buffer

    def stop_reading(self) -> None:
        self.calls.append("stop")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def stalled_s(self, now_s: float) -> float:
        return 0.0


def open_count(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("penstock_connections", {"listener": "PLAINTEXT"})


def ended_count(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("penstock_connections_closed_total", {"reason": "stalled"})


class Silent:
    """A connection whose client does not authenticate."""

    listener = "CLIENTS"

    def __init__(self, table: ConnectionTable, address: str) -> None:
        self.table = table
        self.address = address

    def memory_granted(self) -> None: ...

    def abort(self) -> None: ...

    def give_way(self) -> None:
        self.table.unregister_unauthenticated(self)


def test_strangers_share_what_clients_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nearly all connections are clients', one address keeps no other out, and whoever logs in finds a place."""
    monkeypatch.setattr(connection_table, "CONNECTIONS_MAX", 4)
    table, clients = ConnectionTable(metrics=Metrics()), [StubConnection() for _ in range(3)]
    for client in clients[:2]:
        assert table.register(client)
    greedy = [Silent(table, "192.0.2.1") for _ in range(3)]
    assert [table.register_unauthenticated(each) for each in greedy] == [True, True, False]
    assert not table.register(clients[2]), "all connections are taken"
    other = Silent(table, "192.0.2.2")
    assert table.register_unauthenticated(other)
    assert table.unauthenticated == {greedy[1], other}
    table.unregister_unauthenticated(other)
    assert table.register(clients[2], is_new=False)


def test_connections_beyond_the_limit_are_not_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_table, "CONNECTIONS_MAX", 1)
    metrics = Metrics()
    table, first, second = ConnectionTable(metrics=metrics), StubConnection(), StubConnection()
    assert table.register(first)
    assert not table.register(second)
    table.unregister(second)
    assert open_count(metrics) == 1.0
    table.unregister(first)
    assert (open_count(metrics), table.connections) == (0.0, set())
    assert table.register(second)


def test_no_connection_is_registered_while_draining() -> None:
    table = ConnectionTable(metrics=Metrics())
    table.is_draining = True
    assert not table.register(StubConnection())


async def test_one_wake_for_all_memory_that_a_turn_returns() -> None:
    table, paused = ConnectionTable(metrics=Metrics()), StubConnection()
    table.paused.add(paused)
    table.wake_soon()
    table.wake_soon()
    assert paused.calls == []
    await asyncio.sleep(0)
    assert paused.calls == ["regulate"]


async def test_a_wake_reads_only_from_claimants_while_memory_is_full() -> None:
    table = ConnectionTable(metrics=Metrics(), request_bytes_max=100)
    paused, claimant = StubConnection(), StubConnection()
    table.memory.count(100)
    assert not table.memory.claim(claimant, 50, may_use_reserve=False)
    table.paused |= {paused, claimant}
    table.wake_soon()
    await asyncio.sleep(0)
    assert (paused.calls, claimant.calls) == ([], ["regulate"])


def test_each_fetch_is_hurried_once() -> None:
    table, connection = ConnectionTable(metrics=Metrics()), StubConnection()
    table.behind_fetch.add(connection)
    table.hurry_fetches()
    table.hurry_fetches()
    assert connection.calls == ["hurry"]


def test_a_buffer_is_taken_from_a_connection_that_does_not_use_it() -> None:
    table = ConnectionTable(metrics=Metrics(), receive_bytes_max=RECEIVE_BUFFER_BYTES)
    in_use, unused, other = StubConnection(leaves_buffer=False), StubConnection(), StubConnection()
    assert table.lend_buffer(in_use)
    assert not table.lend_buffer(unused)
    table.take_back_unused_buffers(RECEIVE_STALLED_SECONDS_MAX)
    assert list(table.roomy) == [in_use]
    in_use.leaves_buffer = True
    assert table.lend_buffer(unused)
    assert list(table.roomy) == [unused]
    assert table.lend_buffer(other)
    table.take_back_unused_buffers(RECEIVE_STALLED_SECONDS_MAX)
    assert (table.roomy, table.memory.lent_bytes) == ({}, 0)


def test_beyond_the_bound_of_unread_answers_the_oldest_is_ended_and_counted() -> None:
    metrics = Metrics()
    table = ConnectionTable(metrics=metrics, answer_bytes_max=100)
    oldest, younger = StubConnection(unread_bytes=60), StubConnection(unread_bytes=41)
    table.keep_unread(oldest)
    table.keep_unread(younger)
    assert (oldest.calls, younger.calls) == (["abort"], [])
    assert (table.answers.holders(), table.answers.unread_bytes) == ([younger], 41)
    assert ended_count(metrics) == 1.0


def test_counts_are_brought_up_to_date_before_a_connection_is_ended() -> None:
    table = ConnectionTable(metrics=Metrics(), answer_bytes_max=100)
    oldest, younger = StubConnection(unread_bytes=60), StubConnection(unread_bytes=41)
    table.keep_unread(oldest)
    oldest.unread_bytes = 10
    table.keep_unread(younger)
    assert (oldest.calls, younger.calls) == ([], [])
    assert table.answers.unread_bytes == 51


def test_a_connection_that_is_ended_for_its_own_sake_is_not_counted() -> None:
    metrics = Metrics()
    table, connection = ConnectionTable(metrics=metrics), StubConnection()
    table.end_slow(connection, "does not read its answers", is_counted=False)
    assert connection.calls == ["abort"]
    assert not ended_count(metrics)
