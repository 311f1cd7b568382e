"""The state as bytes: everything in it, in one order, and back."""

import hashlib

import cramjam
import msgspec
import pytest

from coordinator.codec.snapshot_frame import framed, has_checksum, unframed
from coordinator.codec.snapshot_wire import SHAPE_BYTES, SnapshotPartition, described_shape, snapshot_shape
from coordinator.commands.agents import DescribeAgent, RequestDrain
from coordinator.commands.commands import AllocateProducerIds, DeleteTopic, Done, EndSession, ReportTime, StartDrain
from coordinator.commands.rules import (
    RULES_AGENTS,
    RULES_CHECKED_ENTRIES,
    RULES_CHECKED_STORAGE,
    RULES_DELEGATION_TOKENS,
    RULES_FIRST,
    RULES_NEWEST,
    RULES_QUOTA_USE,
    RULES_SECURITY,
)
from coordinator.invariants import check
from coordinator.ledger.port import LedgerCorrupt, NewerRules
from coordinator.snapshot import (
    Frozen,
    decode_snapshot,
    decode_with_digest,
    digest,
    encode_snapshot,
    encode_with_digest,
)
from coordinator.state.state import ClusterState, PartitionState
from protocol.types import Milliseconds, PartitionIndex, ProducerEpoch, SessionId, TopicId
from protocol.types import Sequence as SequenceNumber
from tests.golden import golden_bytes
from tests.support.commands.commands import (
    TOPIC,
    Batch,
    Chunk,
    Cluster,
    commit,
    create,
    delete_before,
    idempotent,
    start,
)
from txn.producer_state import NO_SEQUENCE, mark

OTHER = TopicId(bytes([1] * 16))


def lived_in() -> Cluster:
    """A cluster in which every kind of thing exists."""
    cluster = Cluster.started(retention_ms="5", message_timestamp_type="LogAppendTime")
    cluster.do(start("b", node=2), session=2, time_ms=1_000)
    cluster.do(EndSession(session=SessionId(2)))
    cluster.do(AllocateProducerIds(count=10))
    cluster.do(create("u", topic_id=OTHER, partitions=2))
    cluster.do(create("gone", topic_id=TopicId(bytes([2] * 16))))
    cluster.do(DeleteTopic(topic_id=TopicId(bytes([2] * 16))))
    cluster.do(commit(0, Chunk(batches=[idempotent(0, records=3), idempotent(3), Batch()])), time_ms=1_000)
    cluster.do(commit(1, Chunk(topic_id=OTHER, partition=1, batches=[Batch(timestamp=5)])))
    cluster.do(commit(2, Chunk(batches=[idempotent(9)])), time_ms=1_000)
    return cluster


def test_the_digest_of_what_an_older_version_wrote_is_that_of_its_bytes() -> None:
    """A version that knows fewer fields wrote fewer: its pointer's digest must hold for those who know more (S3)."""
    state = lived_in().state
    data, state_digest = encode_with_digest(state)
    canonical = bytes(cramjam.zstd.decompress(data[1:]))
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(canonical)[:-1])
    read, digest_read = decode_with_digest(snapshot_of(older))
    assert decode_with_digest(data)[1] == state_digest
    assert digest_read == hashlib.blake2b(older, digest_size=32).digest() != digest(read)


def test_where_log_and_table_start_is_kept() -> None:
    cluster = Cluster.started(penstock_table_retention_ms="-1")
    cluster.produce(0, Batch(records=3))
    cluster.do(delete_before(2))
    found = decode_snapshot(encode_snapshot(cluster.state)).topics[TOPIC].partitions[0]
    assert (found.log_start, found.table_start, found.log_end) == (2, 0, 3)


def without_checksum(data: bytes) -> bytes:
    """The same snapshot as it was written before there were checksums."""
    return data[:1] + bytes(unframed(data))


def decodable_flips(data: bytes) -> list[bytes]:
    """Copies of a snapshot with one bit turned over that can be decoded all the same, as another state."""
    found: list[bytes] = []
    written = decode_with_digest(data)[1]
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            is_other = decode_with_digest(bytes(damaged))[1] != written
        except LedgerCorrupt:
            continue
        if is_other:
            found.append(bytes(damaged))
    return found


def snapshot_of(body: bytes) -> bytes:
    return b"\x01" + bytes(cramjam.zstd.compress(body))


def test_one_walk_over_the_state_gives_bytes_and_digest() -> None:
    state = lived_in().state
    assert encode_with_digest(state) == (encode_snapshot(state), digest(state))


@pytest.mark.parametrize("count", [15, 16, 0x10000])
def test_it_is_encoded_by_pieces_however_many_there_are(count: int) -> None:
    cluster = Cluster.started()
    cluster.state.topics[TOPIC].partitions = [PartitionState() for _ in range(count)]
    canonical = bytes(cramjam.zstd.decompress(encode_snapshot(cluster.state)[1:]))
    body = msgspec.msgpack.decode(canonical)
    assert len(body[11][0][4]) == count
    assert msgspec.msgpack.encode(body) == canonical


def test_a_frozen_state_stays_what_it_was() -> None:
    """What is made of it in a thread does not see what is applied meanwhile (safety rule S3)."""
    cluster = lived_in()
    frozen, before, snapshot = Frozen(cluster.state), digest(cluster.state), encode_snapshot(cluster.state)
    position, appends = cluster.state.position, cluster.state.appends_count
    cluster.produce(3, Batch())
    cluster.do(DeleteTopic(topic_id=OTHER))
    cluster.do(start("c", node=3), session=3)
    assert (frozen.position, frozen.appends_count) == (position, appends)
    assert frozen.digest() == before != digest(cluster.state)
    assert frozen.encode_with_digest() == (snapshot, before)


def test_a_state_is_its_snapshot() -> None:
    state = lived_in().state
    copy = decode_snapshot(encode_snapshot(state))
    assert digest(copy) == digest(state)
    assert check(copy) == []
    assert copy.topics[OTHER].partitions[1].index.row(0) == state.topics[OTHER].partitions[1].index.row(0)
    assert copy.topic_ids == state.topic_ids
    assert copy.object_ids == state.object_ids
    assert copy.partitions_count == 3
    assert copy.topics_at == copy.position >= state.topics_at


def test_replicas_by_hand_are_part_of_the_state() -> None:
    cluster = lived_in()
    before = digest(cluster.state)
    cluster.state.topics[OTHER].replicas = {PartitionIndex(1): (3, 1)}
    snapshot = encode_snapshot(cluster.state)
    copy = decode_snapshot(golden_bytes("snapshots/with_replicas"))
    assert copy.topics[OTHER].replicas == {1: (3, 1)}
    assert digest(copy) == digest(decode_snapshot(snapshot)) != before


def test_an_empty_state_has_a_snapshot() -> None:
    state = ClusterState.empty("c", 3)
    assert digest(decode_snapshot(encode_snapshot(state))) == digest(state)


def test_a_snapshot_of_any_age_is_read() -> None:
    state = lived_in().state
    assert digest(decode_snapshot(golden_bytes("snapshots/1"))) == digest(state)


def test_s3_a_snapshot_is_as_the_first_version_wrote_it_while_its_rules_are_in_force() -> None:
    """Or agents of two versions would give one state two digests, and each would take the other for wrong."""
    state = lived_in().state
    assert state.rules_version == RULES_FIRST
    kept = bytes(cramjam.zstd.decompress(golden_bytes("rules_1/snapshot")[1:]))
    assert bytes(cramjam.zstd.decompress(encode_snapshot(state)[1:])) == kept
    assert snapshot_shape(RULES_FIRST) == bytes.fromhex("ffdf09db8dcebfb8")


@pytest.mark.parametrize(
    ("rules_version", "described", "recorded"),
    [
        (RULES_CHECKED_STORAGE, "1247b7aed9edab46", "adaa8b3811de0c9a"),
        (RULES_CHECKED_ENTRIES, "b13b9cfd95a25a8e", "b13b9cfd95a25a8e"),
        (RULES_SECURITY, "155880adad2f754a", "155880adad2f754a"),
        (RULES_DELEGATION_TOKENS, "d1b6c4c3205ebfb3", "d1b6c4c3205ebfb3"),
        (RULES_QUOTA_USE, "d1b6c4c3205ebfb3", "d1b6c4c3205ebfb3"),
        (RULES_AGENTS, "bd55011069ea57c4", "bd55011069ea57c4"),
    ],
)
def test_s3_a_recorded_shape_stands_for_one_form(rules_version: int, described: str, recorded: str) -> None:
    """A change of the form of a version needs another shape: older agents have other bytes."""
    assert described_shape(rules_version).hex() == described, "the form is another one: record another shape"
    assert snapshot_shape(rules_version).hex() == recorded


def test_s3_every_form_of_a_snapshot_has_a_shape_of_its_own() -> None:
    shapes = {rules_version: snapshot_shape(rules_version) for rules_version in range(RULES_FIRST, RULES_NEWEST + 1)}
    assert {len(shape) for shape in shapes.values()} == {SHAPE_BYTES}
    # RULES_QUOTA_USE changes an entry, and no snapshot.
    assert shapes.pop(RULES_QUOTA_USE) == shapes[RULES_DELEGATION_TOKENS]
    assert len({*shapes.values()}) == len(shapes)


def test_runs_of_producers_are_kept_from_the_rules_on_that_have_them() -> None:
    cluster = lived_in()
    for number, one in enumerate(cluster.partition.producers.values()):
        one.run_first = SequenceNumber(number)
    runs = [one.run_first for one in cluster.partition.producers.values()]
    for rules_version, expected in ((RULES_CHECKED_STORAGE, [NO_SEQUENCE] * len(runs)), (RULES_CHECKED_ENTRIES, runs)):
        cluster.state.rules_version = rules_version
        read = decode_snapshot(encode_snapshot(cluster.state)).topics[TOPIC].partitions[0].producers
        assert [one.run_first for one in read.values()] == expected


def test_positions_of_producers_are_kept_from_the_rules_on_that_have_them() -> None:
    cluster = lived_in()
    positions = [one.last_position for one in cluster.partition.producers.values()]
    assert 0 not in positions
    read = decode_snapshot(encode_snapshot(cluster.state)).topics[TOPIC].partitions[0].producers
    assert [one.last_position for one in read.values()] == [0] * len(positions)
    cluster.state.rules_version = RULES_CHECKED_STORAGE
    data = encode_snapshot(cluster.state)
    assert [
        one.last_position for one in decode_snapshot(data).topics[TOPIC].partitions[0].producers.values()
    ] == positions
    body = msgspec.msgpack.decode(bytes(cramjam.zstd.decompress(data[1:])))
    body[11][0][4][0][-2].append(5)
    with pytest.raises(LedgerCorrupt, match="longer"):
        decode_snapshot(snapshot_of(msgspec.msgpack.encode(body)))


def described() -> Cluster:
    """A cluster whose agent has described itself and drains on request, and one that does neither."""
    cluster = Cluster.started(RULES_AGENTS)
    cluster.do(start("b", node=2, rules=RULES_AGENTS), session=2)
    description = DescribeAgent(http_url="http://a:9644", version="0.1.0", started_ms=Milliseconds(1_000))
    for command in (description, RequestDrain(session=SessionId(1)), StartDrain(session=SessionId(1))):
        assert cluster.do(command, time_ms=2_000) == Done()
    return cluster


def test_what_agents_say_of_themselves_is_part_of_the_state() -> None:
    state = described().state
    kept = golden_bytes("snapshots/with_described_agents", encode_snapshot(state))
    sessions = decode_snapshot(kept).sessions
    assert sessions == state.sessions
    assert sessions[SessionId(1)].draining_since_ms == 2_000
    assert digest(decode_snapshot(kept)) == digest(state)


def test_s3_a_field_that_is_not_known_is_refused() -> None:
    state = lived_in().state
    state.rules_version = RULES_NEWEST
    body = msgspec.msgpack.decode(bytes(cramjam.zstd.decompress(encode_snapshot(state)[1:])))
    with pytest.raises(LedgerCorrupt, match="of at most length"):
        decode_snapshot(snapshot_of(msgspec.msgpack.encode([*body, 0])))
    partition = body[11][0][4][0]
    partition += [[]] * (len(SnapshotPartition.__struct_fields__) + 1 - len(partition))
    with pytest.raises(LedgerCorrupt, match="of at most length"):
        decode_snapshot(snapshot_of(msgspec.msgpack.encode(body)))


def test_the_digest_does_not_depend_on_the_order_in_which_things_came() -> None:
    one, other = Cluster(), Cluster()
    for cluster, names in ((one, "uv"), (other, "vu")):
        cluster.do(start())
        for name in names:
            cluster.do(create(name, topic_id=TopicId(name.encode() * 16)))
    assert digest(one.state) == digest(other.state)
    one.do(ReportTime(), time_ms=1)
    assert digest(one.state) != digest(other.state)


def test_who_drains_is_part_of_the_state() -> None:
    cluster = Cluster.started()
    before = digest(cluster.state)
    cluster.state.sessions[SessionId(1)].is_draining = True
    assert digest(cluster.state) != before
    assert decode_snapshot(encode_snapshot(cluster.state)).sessions[SessionId(1)].is_draining


def test_a_producer_whose_epoch_came_with_a_marker_is_kept() -> None:
    state = lived_in().state
    topic = next(one for one in state.topics.values() if any(each.producers for each in one.partitions))
    index, partition = next((n, each) for n, each in enumerate(topic.partitions) if each.producers)
    producer_id, producer = next(iter(partition.producers.items()))
    epoch = ProducerEpoch(producer.epoch + 1)
    mark(partition.producers, producer_id=producer_id, epoch=epoch, time_ms=Milliseconds(5))
    again = decode_snapshot(encode_snapshot(state))
    kept = again.topics[topic.topic_id].partitions[index].producers[producer_id]
    assert (kept.epoch, kept.recent, kept.sequence_next, kept.last_active_ms) == (epoch, [], 0, 5)
    assert digest(again) == digest(state)


class TestItsChecksum:
    """S20: nothing of a snapshot is decompressed before it is known to be as it was written."""

    def test_s20_no_flipped_bit_and_no_cut_is_believed(self) -> None:
        data = encode_snapshot(lived_in().state)
        assert has_checksum(data)
        for bit in range(len(data) * 8):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(LedgerCorrupt, match=r"checksum|in format"):
                decode_snapshot(bytes(damaged))
        for end in range(len(data)):
            with pytest.raises(LedgerCorrupt, match=r"checksum|in format"):
                decode_snapshot(data[:end])
        with pytest.raises(LedgerCorrupt, match="checksum"):
            decode_snapshot(data + b"\x00")

    def test_without_one_flipped_bits_are_taken_for_another_state(self) -> None:
        """So the checksum is needed: frames of zstd as they were written have none of their own."""
        state = lived_in().state
        data = without_checksum(encode_snapshot(state))
        assert not has_checksum(data)
        believed = decodable_flips(data)
        assert len(believed) > 100
        assert all(decode_with_digest(damaged)[1] != digest(state) for damaged in believed)

    def test_programs_of_before_read_a_snapshot_with_one(self) -> None:
        """They decompress all that follows the first byte; a decoder of zstd passes over skippable frames."""
        data = golden_bytes("snapshots/with_checksum", encode_snapshot(lived_in().state))
        assert has_checksum(data)
        assert data[0] == golden_bytes("snapshots/1")[0]
        decompressed = bytes(cramjam.zstd.decompress(memoryview(data)[1:]))
        assert decompressed == bytes(cramjam.zstd.decompress(without_checksum(data)[1:]))
        assert decode_with_digest(data)[1] == digest(lived_in().state)

    def test_one_of_before_has_none_and_is_read(self) -> None:
        data = golden_bytes("snapshots/1")
        assert not has_checksum(data)
        assert digest(decode_snapshot(data)) == digest(lived_in().state)


class TestUnreadableSnapshots:
    @pytest.mark.parametrize("data", [b"", b"\x02", b"\x01", b"\x01junk", snapshot_of(b""), snapshot_of(b"\x90")])
    def test_bytes_that_are_no_snapshot_are_refused(self, data: bytes) -> None:
        with pytest.raises(LedgerCorrupt):
            decode_snapshot(data)

    def test_a_flipped_bit_in_its_values_is_corruption_or_another_value(self) -> None:
        body = bytes(cramjam.zstd.decompress(encode_snapshot(lived_in().state)[1:]))
        refused = 0
        for bit in range(0, len(body) * 8, 5):
            damaged = bytearray(body)
            damaged[bit // 8] ^= 1 << (bit % 8)
            try:
                decode_snapshot(snapshot_of(bytes(damaged)))
            except LedgerCorrupt:
                refused += 1
        assert refused > 100

    def test_a_snapshot_that_contradicts_itself_is_refused(self) -> None:
        body = msgspec.msgpack.decode(bytes(cramjam.zstd.decompress(encode_snapshot(lived_in().state)[1:])))
        partition = body[11][0][4][0]
        del partition[3][-2:]
        with pytest.raises(LedgerCorrupt, match="11 columns"):
            decode_snapshot(snapshot_of(msgspec.msgpack.encode(body)))


class TestFormsOfNewerRules:
    """A form that is not known asks for an upgrade, where nothing can be damaged (safety rules S3 and S20)."""

    @staticmethod
    def with_a_new_field(rules_version: int) -> bytes:
        """A state whose form has a field more than this program knows, as a zstd frame."""
        fields = msgspec.msgpack.decode(cramjam.zstd.decompress(unframed(encode_snapshot(lived_in().state))))
        fields[5] = rules_version
        return bytes(cramjam.zstd.compress(msgspec.msgpack.encode([*fields, "new"])))

    def test_with_its_checksum_it_names_the_rules(self) -> None:
        with pytest.raises(NewerRules, match=f"rules {RULES_NEWEST + 1} are in force, this program knows"):
            decode_snapshot(framed(self.with_a_new_field(RULES_NEWEST + 1)))

    def test_under_rules_that_are_known_it_is_damage(self) -> None:
        with pytest.raises(LedgerCorrupt, match="a snapshot cannot be read") as raised:
            decode_snapshot(framed(self.with_a_new_field(RULES_NEWEST)))
        assert not isinstance(raised.value, NewerRules)

    def test_without_a_checksum_the_number_may_be_the_damage(self) -> None:
        format_version = encode_snapshot(lived_in().state)[:1]
        with pytest.raises(LedgerCorrupt, match="a snapshot cannot be read") as raised:
            decode_snapshot(format_version + self.with_a_new_field(RULES_NEWEST + 1))
        assert not isinstance(raised.value, NewerRules)

    @pytest.mark.parametrize("content", [b"\x93\x01\x02\x03", b"\x96\x01\x02\x03\x04\x05\xc0", b"\xc1"])
    def test_so_is_what_does_not_begin_like_a_state(self, content: bytes) -> None:
        with pytest.raises(LedgerCorrupt, match="a snapshot cannot be read") as raised:
            decode_snapshot(framed(bytes(cramjam.zstd.compress(content))))
        assert not isinstance(raised.value, NewerRules)
