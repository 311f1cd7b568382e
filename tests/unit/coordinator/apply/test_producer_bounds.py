"""How many producers a partition, and the cluster, remember: whoever wrote longest ago goes for the next (S3, S8)."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from coordinator.apply import producer_bounds
from coordinator.commands.commands import AllocateProducerIds, DeleteTopic, Done, ExpireProducers, RaiseRules
from coordinator.commands.rules import RULES_CHECKED_STORAGE, RULES_FIRST
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.producer_order import ProducerOrder
from protocol.errors import ErrorCode
from protocol.types import Milliseconds, PartitionIndex, Position, ProducerId, SessionId, TopicId
from tests.support.commands.commands import TOPIC, Chunk, Cluster, commit, create, idempotent, start
from tests.support.commands.transaction_commands import add, begin, end, transactional

PER_PARTITION, IN_ALL = 3, 5
FIRST_ID = 100
NO_ERROR, NO_ROOM = int(ErrorCode.none), int(ErrorCode.request_timed_out)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_bounds, "PRODUCER_STATES_PER_PARTITION_MAX", PER_PARTITION)
    monkeypatch.setattr(producer_bounds, "PRODUCER_STATES_MAX", IN_ALL)


class Bounded(Cluster):
    """Three partitions; producer ids up to `FIRST_ID` + 99 are given."""

    def __init__(self, rules: int = RULES_CHECKED_STORAGE) -> None:
        super().__init__()
        self.do(start(rules=RULES_CHECKED_STORAGE))
        if rules > RULES_FIRST:
            assert self.do(RaiseRules(rules_version=rules)) == Done()
        self.do(create(partitions=3))
        self.do(AllocateProducerIds(count=FIRST_ID + 100))
        self.objects_count = 0
        self.now_ms: int | None = None

    def write(self, *producers: int, partition: int = 0, sequence: int = 0) -> list[int]:
        """One batch of each, in an entry of its own; the error codes."""
        return [code for one in producers for code in self.write_together(one, partition=partition, sequence=sequence)]

    def write_together(self, *producers: int, partition: int = 0, sequence: int = 0) -> list[int]:
        batches = [idempotent(sequence, producer=FIRST_ID + one) for one in producers]
        self.objects_count += 1
        outcome = self.do(commit(self.objects_count, Chunk(batches=batches, partition=partition)), time_ms=self.now_ms)
        codes: list[int] = list(outcome.error_codes)  # type: ignore[union-attr]
        return codes

    def expire(self, now_ms: int) -> None:
        """Forget all who wrote before."""
        self.now_ms = now_ms
        self.do(ExpireProducers(cutoff_ms=Milliseconds(now_ms)), time_ms=now_ms)

    def known(self, partition: int = 0) -> list[int]:
        found = self.state.topics[TOPIC].partitions[partition].producers
        return sorted(int(one) - FIRST_ID for one in found)

    def open_transaction(self, transactional_id: str, *, partition: int = 0) -> int:
        """The producer id of a transaction that has written to a partition."""
        decided = self.do(begin(transactional_id=transactional_id))
        producer = int(decided.producer_id)  # type: ignore[union-attr]
        self.objects_count += 1
        batch = transactional(0, producer=producer)
        outcome = self.do(commit(self.objects_count, Chunk(batches=[batch], partition=partition)))
        assert list(outcome.error_codes) == [NO_ERROR]  # type: ignore[union-attr]
        return producer - FIRST_ID


class TestAPartition:
    def test_forgets_whoever_wrote_longest_ago(self) -> None:
        cluster = Bounded()
        cluster.write(0, 1, 2)
        cluster.write(0, sequence=1)
        assert cluster.write(3) == [NO_ERROR]
        assert cluster.known() == [0, 2, 3]
        assert cluster.write(4) == [NO_ERROR]
        assert cluster.known() == [0, 3, 4]
        assert cluster.state.producers_dropped_count == 2

    def test_s8_takes_any_next_sequence_of_a_producer_that_was_forgotten(self) -> None:
        cluster = Bounded()
        cluster.write(0, 1, 2, 3)
        assert cluster.known() == [1, 2, 3]
        assert cluster.write(0, sequence=1) == [NO_ERROR]
        cluster.do(AllocateProducerIds(count=1))
        assert cluster.write(100, sequence=1) == [int(ErrorCode.out_of_order_sequence_number)]

    def test_forgets_none_for_a_batch_that_is_refused(self) -> None:
        cluster = Bounded()
        cluster.write(0, 1, 2)
        assert cluster.write(3, sequence=5) == [int(ErrorCode.out_of_order_sequence_number)]
        assert cluster.known() == [0, 1, 2]

    def test_forgets_those_of_one_entry_in_the_order_of_their_ids(self) -> None:
        cluster = Bounded()
        assert cluster.write_together(2, 1, 0) == [NO_ERROR] * 3
        cluster.write(3)
        assert cluster.known() == [1, 2, 3]

    def test_keeps_what_has_a_transaction_open_here(self) -> None:
        cluster = Bounded()
        producer = cluster.open_transaction("tx")
        cluster.write(1, 2, 3)
        assert cluster.known() == [2, 3, producer]
        cluster.do(end(transactional_id="tx", producer=producer + FIRST_ID))
        cluster.write(4, 5)
        assert cluster.known() == [4, 5, producer], "its marker is its last write"
        cluster.write(6)
        assert cluster.known() == [4, 5, 6]

    def test_refuses_a_producer_retriably_where_none_can_go(self) -> None:
        cluster = Bounded()
        held = [cluster.open_transaction(name) for name in ("a", "b", "c")]
        assert cluster.write(0) == [NO_ROOM]
        assert cluster.known() == held
        cluster.do(end(transactional_id="a", producer=held[0] + FIRST_ID))
        assert cluster.write(0) == [NO_ERROR]
        assert cluster.known() == sorted([*held[1:], 0])

    def test_keeps_no_state_of_a_marker_for_which_none_can_go(self) -> None:
        cluster = Bounded()
        decided = cluster.do(begin(transactional_id="empty"))
        producer = int(decided.producer_id)  # type: ignore[union-attr]
        cluster.do(add(0, transactional_id="empty", producer=producer))
        held = [cluster.open_transaction(name) for name in ("a", "b", "c")]
        before = cluster.state.topics[TOPIC].partitions[0].log_end
        cluster.do(end(transactional_id="empty", producer=producer))
        partition = cluster.state.topics[TOPIC].partitions[0]
        assert partition.log_end == before + 1
        assert cluster.known() == held
        assert partition.unknown_producers_below == cluster.state.producer_id_next

    def test_forgets_again_after_others_expired(self) -> None:
        cluster = Bounded()
        cluster.now_ms = 20
        cluster.write(0, 1, 2, 3)
        cluster.expire(50)
        assert cluster.known() == []
        assert cluster.write(5, 4, 3, 2) == [NO_ERROR] * 4
        assert cluster.known() == [2, 3, 4]


class TestTheCluster:
    def test_forgets_whoever_wrote_longest_ago_anywhere(self) -> None:
        cluster = Bounded()
        cluster.write(0, 1, partition=0)
        cluster.write(0, 1, partition=1)
        cluster.write(0, partition=2)
        cluster.write(0, partition=0, sequence=1)
        assert cluster.write(1, partition=2) == [NO_ERROR]
        assert [cluster.known(partition) for partition in range(3)] == [[0], [0, 1], [0, 1]]
        assert cluster.state.topics[TOPIC].partitions[0].unknown_producers_below == cluster.state.producer_id_next
        assert cluster.state.topics[TOPIC].partitions[1].unknown_producers_below == 0

    def test_refuses_a_producer_retriably_where_none_can_go(self) -> None:
        cluster = Bounded()
        for number in range(IN_ALL):
            cluster.open_transaction(f"tx{number}", partition=number % 3)
        assert cluster.write(0, partition=2) == [NO_ROOM]
        assert cluster.state.producers_count == IN_ALL

    def test_passes_over_a_topic_that_is_deleted(self) -> None:
        cluster = Bounded()
        other = TopicId(bytes([9] * 16))
        cluster.do(create("u", topic_id=other))
        for number in range(IN_ALL + 1):
            cluster.objects_count += 1
            chunk = Chunk(batches=[idempotent(0, producer=FIRST_ID)], topic_id=other)
            cluster.do(commit(cluster.objects_count, chunk if number == 1 else replace(chunk, topic_id=TOPIC)))
            cluster.write(number, partition=number % 3)
        assert cluster.state.producer_order is not None
        cluster.do(DeleteTopic(topic_id=other))
        cluster.write(10, 11, 12, 13, partition=1)
        assert cluster.state.producers_count <= IN_ALL


class TestWhatIsKept:
    def test_a_snapshot_leads_to_the_same_next_one(self) -> None:
        cluster = Bounded()
        cluster.write(2, 1, 0)
        other = Bounded()
        other.state = decode_snapshot(encode_snapshot(cluster.state))
        for one in (cluster, other):
            one.objects_count = 50
            one.numbers = dict(cluster.numbers)
        assert cluster.write(3) == [NO_ERROR]
        other.records = cluster.records[:-1]
        assert other.write(3) == [NO_ERROR]
        assert cluster.known() == other.known() == [0, 1, 3]
        assert digest(cluster.state) == digest(other.state)

    def test_s3_nothing_is_forgotten_under_the_first_rules(self) -> None:
        cluster = Bounded(RULES_FIRST)
        assert cluster.write(0, 1, 2, 3, 4, 5) == [NO_ERROR] * 6
        assert cluster.known() == [0, 1, 2, 3, 4, 5]

    def test_s3_what_there_is_too_much_goes_bit_by_bit_in_the_order_of_its_last_time(self) -> None:
        """Agents came to the raise by different ways: one from the entries, one from a snapshot without positions."""
        cluster = Bounded(RULES_FIRST)
        for number, producer in enumerate((5, 3, 1, 0, 2, 4)):
            batch = idempotent(0, producer=FIRST_ID + producer)
            cluster.do(commit(number, Chunk(batches=[batch])), time_ms=10 + number)
        copy = decode_snapshot(encode_snapshot(cluster.state))
        cluster.do(RaiseRules(rules_version=RULES_CHECKED_STORAGE))
        producer_bounds.put_in_order(copy)
        positions = [
            {one: held.last_position for one, held in state.topics[TOPIC].partitions[0].producers.items()}
            for state in (cluster.state, copy)
        ]
        assert positions[0] == positions[1]
        cluster.objects_count = 10
        assert cluster.write(6) == [NO_ERROR]
        assert cluster.known() == [0, 1, 2, 4, 6]
        assert cluster.write(7) == [NO_ERROR]
        assert cluster.known() == [2, 4, 6, 7]
        assert cluster.write(8) == [NO_ERROR]
        assert cluster.known() == [6, 7, 8]

    def test_an_order_that_is_stale_is_given_up(self) -> None:
        """Or those that expire would leave their entries in it for as long as the bound is not reached again."""
        cluster = Bounded()
        cluster.now_ms = 50
        cluster.write(0, 1, 2, 3)
        assert cluster.partition.producer_order is not None
        for number in range(10, 18):
            cluster.expire(100 + number)
            cluster.write(number)
        assert cluster.partition.producer_order is None

    def test_so_is_that_of_the_cluster(self) -> None:
        cluster = Bounded()
        cluster.now_ms = 50
        for number in range(IN_ALL + 1):
            cluster.write(number, partition=number % 3)
        assert cluster.state.producer_order is not None
        for number in range(10, 24):
            cluster.expire(100 + number)
            cluster.write(number, partition=number % 3)
        assert cluster.state.producer_order is None


def keys() -> Iterator[tuple[TopicId, PartitionIndex, ProducerId]]:
    for number in range(4):
        yield TOPIC, PartitionIndex(0), ProducerId(number)


class TestAnOrder:
    def test_gives_each_state_once_the_oldest_first(self) -> None:
        first, second, third, fourth = keys()
        order = ProducerOrder([(Position(9), first), (Position(2), third), (Position(2), second)])
        order.add(Position(1), fourth)
        order.add(Position(50), fourth)
        assert len(order) == 4
        assert [order.pop() for _ in range(5)] == [(1, fourth), (2, second), (2, third), (9, first), None]


def test_a_session_of_older_rules_keeps_the_bounds_away() -> None:
    cluster = Bounded(RULES_FIRST)
    cluster.do(start("b", node=2, rules=RULES_FIRST), session=2)
    assert cluster.do(RaiseRules(rules_version=RULES_CHECKED_STORAGE)) != Done()
    assert SessionId(2) in cluster.state.sessions
