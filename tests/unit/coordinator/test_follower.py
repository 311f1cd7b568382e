"""A reader of the ledger that notices what is missing (safety rules S3 and S9)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from coordinator.apply import apply as apply_module
from coordinator.codec.codec import WrittenEntry, decode, write
from coordinator.codec.snapshot_wire import snapshot_shape
from coordinator.commands.commands import AllocateProducerIds, CompareDigest, Done, Proposal, RaiseRules, ReportTime
from coordinator.commands.rules import RULES_FIRST, RULES_NEWEST
from coordinator.follower import Follower
from coordinator.ledger.port import Head, LedgerCorrupt, LedgerIdentity, LedgerRecord, LedgerStart, SnapshotPointer
from coordinator.snapshot import digest, encode_snapshot
from coordinator.state.state import ClusterState
from protocol.types import Position, SessionId, TopicId
from tests.support.commands.commands import Cluster, create, start

IDENTITY = LedgerIdentity(cluster_id="cluster", incarnation=1)


def pointer_to(state: ClusterState, **changes: object) -> SnapshotPointer:
    fields = {
        "position": state.position,
        "object_key": "ledger/snapshots/1",
        "appends_count": state.appends_count,
        "digest": digest(state),
    }
    return SnapshotPointer(**(fields | changes))  # type: ignore[arg-type]


def begin(
    records: Sequence[LedgerRecord], *, position: int, appends: int, pointer: SnapshotPointer | None = None
) -> LedgerStart:
    return LedgerStart(pointer=pointer, head=Head(position=Position(position), appends_count=appends), records=records)


class TestLoading:
    def test_an_empty_ledger_is_an_empty_state(self) -> None:
        follower = Follower(IDENTITY)
        assert follower.load(begin([], position=0, appends=0), None) == []
        assert digest(follower.state) == digest(ClusterState.empty("cluster", 1))

    def test_without_a_snapshot_every_entry_is_applied(self) -> None:
        cluster = Cluster.started()
        follower = Follower(IDENTITY)
        applied = follower.load(begin(cluster.records, position=2, appends=2), None)
        assert [entry.outcome for entry in applied] == [Done(), Done()]
        assert digest(follower.state) == digest(cluster.state)

    def test_with_a_snapshot_the_entries_after_it_are_applied(self) -> None:
        cluster = Cluster.started()
        snapshot, pointer = encode_snapshot(cluster.state), pointer_to(cluster.state)
        cluster.do(ReportTime(), time_ms=5)
        follower = Follower(IDENTITY)
        applied = follower.load(begin(cluster.records, position=3, appends=3, pointer=pointer), snapshot)
        assert [entry.position for entry in applied] == [3]
        assert digest(follower.state) == digest(cluster.state)

    def test_a_snapshot_and_its_pointer_belong_together(self) -> None:
        cluster = Cluster.started()
        with pytest.raises(LedgerCorrupt, match="without its pointer"):
            Follower(IDENTITY).load(begin([], position=0, appends=0), encode_snapshot(cluster.state))
        with pytest.raises(LedgerCorrupt, match="without its snapshot"):
            Follower(IDENTITY).load(begin([], position=2, appends=2, pointer=pointer_to(cluster.state)), None)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"position": Position(1)}, "its pointer at 1"),
            ({"appends_count": 1}, "after 1"),
            ({"digest": b"other"}, "another digest"),
        ],
    )
    def test_s3_a_snapshot_that_is_not_what_its_pointer_says_is_refused(
        self, changes: dict[str, object], message: str
    ) -> None:
        state = Cluster.started().state
        start_here = begin([], position=2, appends=2, pointer=pointer_to(state, **changes))
        with pytest.raises(LedgerCorrupt, match=message):
            Follower(IDENTITY).load(start_here, encode_snapshot(state))

    @pytest.mark.parametrize(("cluster_id", "incarnation"), [("other", 1), ("cluster", 2)])
    def test_s9_a_snapshot_of_another_cluster_is_refused(self, cluster_id: str, incarnation: int) -> None:
        state = Cluster.started().state
        follower = Follower(LedgerIdentity(cluster_id=cluster_id, incarnation=incarnation))
        with pytest.raises(LedgerCorrupt, match="is of cluster 'cluster', incarnation 1"):
            follower.load(begin([], position=2, appends=2, pointer=pointer_to(state)), encode_snapshot(state))

    def test_s9_a_missing_append_is_noticed(self) -> None:
        cluster = Cluster.started()
        with pytest.raises(LedgerCorrupt, match=r"an entry is missing; docs/operations/recovery\.md"):
            Follower(IDENTITY).load(begin(cluster.records, position=2, appends=3), None)

    def test_an_entry_that_cannot_be_read_is_named_with_what_to_do(self) -> None:
        cluster = Cluster.started()
        (*records, last) = cluster.records
        damaged = replace(last, payload=last.payload[:-1])
        with pytest.raises(LedgerCorrupt, match="cannot be read") as raised:
            Follower(IDENTITY).load(begin([*records, damaged], position=last.position, appends=2), None)
        assert f"entry {last.number} of session {last.session} at position {last.position}" in str(raised.value)
        assert 'docs/operations/recovery.md, "The ledger holds what cannot be read"' in str(raised.value)

    def test_s9_a_snapshot_ahead_of_the_ledger_is_noticed(self) -> None:
        state = Cluster.started().state
        with pytest.raises(LedgerCorrupt, match="restored from a backup"):
            Follower(IDENTITY).load(begin([], position=1, appends=2, pointer=pointer_to(state)), encode_snapshot(state))


class TestReceiving:
    def test_records_are_applied_in_order_and_none_twice(self) -> None:
        cluster = Cluster.started()
        cluster.do(AllocateProducerIds(count=3))
        follower = Follower(IDENTITY)
        assert [entry.number for entry in follower.receive(cluster.records[:2])] == [0, 1]
        assert [entry.number for entry in follower.receive(cluster.records)] == [2]
        assert digest(follower.state) == digest(cluster.state)

    def test_a_repeat_has_no_proposal(self) -> None:
        cluster = Cluster.started()
        cluster.put(create(), session=1, number=1)
        applied = Follower(IDENTITY).receive(cluster.records)
        assert [entry.proposal is None for entry in applied] == [False, False, True]

    def test_entries_of_one_append_are_all_applied(self) -> None:
        records = [
            LedgerRecord(position=Position(4), session=record.session, number=record.number, payload=record.payload)
            for record in Cluster.started().records
        ]
        follower = Follower(IDENTITY)
        assert len(follower.receive(records)) == 2
        follower.check_head(Head(position=Position(4), appends_count=1))

    def test_positions_that_fall_are_noticed(self) -> None:
        cluster = Cluster.started()
        with pytest.raises(LedgerCorrupt, match="position 1 comes after 2"):
            Follower(IDENTITY).receive(cluster.records[::-1])

    def test_s3_rules_that_this_program_does_not_know_stop_it(self) -> None:
        cluster = Cluster()
        cluster.do(start(rules=99))
        cluster.do(RaiseRules(rules_version=99))
        with pytest.raises(LedgerCorrupt, match="rules 99 are in force"):
            Follower(IDENTITY).receive(cluster.records)


class TestOwnEntries:
    """An entry that this agent wrote is not read again, as long as its bytes come back as they were written."""

    @staticmethod
    def written(session: int = 1, number: int = 3) -> tuple[LedgerRecord, WrittenEntry]:
        entry = write(
            Proposal(time_ms=None, command=AllocateProducerIds(count=3)), RULES_NEWEST, SessionId(session), number
        )
        record = LedgerRecord(position=Position(4), session=SessionId(session), number=number, payload=entry.payload)
        return record, entry

    @staticmethod
    def follower() -> Follower:
        follower = Follower(IDENTITY)
        follower.receive(Cluster.started(RULES_NEWEST).records)
        return follower

    def test_it_is_applied_as_it_was_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        record, entry = self.written()
        reader, writer = self.follower(), self.follower()
        reader.receive([record])
        writer.expect(record.session, record.number, entry)
        monkeypatch.delattr(apply_module, "decode")
        (applied,) = writer.receive([record])
        assert applied.proposal is entry.proposal
        assert digest(writer.state) == digest(reader.state)

    def test_what_is_written_equals_what_is_read(self) -> None:
        record, entry = self.written()
        assert entry.proposal == decode(record)

    def test_s20_bytes_that_come_back_changed_are_damage(self) -> None:
        record, entry = self.written()
        follower = self.follower()
        follower.expect(record.session, record.number, entry)
        damaged = replace(record, payload=record.payload[:-1] + bytes([record.payload[-1] ^ 1]))
        with pytest.raises(LedgerCorrupt, match="its checksum is"):
            follower.receive([damaged])

    def test_s20_so_are_the_bytes_of_another_entry(self) -> None:
        record, entry = self.written()
        other, _ = self.written(number=7)
        follower = self.follower()
        follower.expect(record.session, record.number, entry)
        with pytest.raises(LedgerCorrupt, match="its checksum is"):
            follower.receive([replace(record, payload=other.payload)])

    def test_what_is_not_expected_any_more_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        record, entry = self.written()
        follower = self.follower()
        follower.expect(record.session, record.number, entry)
        follower.expect_no_more(record.session, record.number)
        follower.expect_no_more(record.session, record.number)
        monkeypatch.delattr(apply_module, "decode")
        with pytest.raises(NameError):
            follower.receive([record])


class TestDigestsThatAreAskedFor:
    """Safety rule S3: the state is kept as it was behind the append that asks, whatever came with it and after it."""

    @staticmethod
    def asked(*, commands_after: int, is_one_append: bool) -> tuple[list[LedgerRecord], bytes]:
        """Records, and the digest at the position of the append that asks."""
        cluster = Cluster.started()
        cluster.do(CompareDigest(shape=snapshot_shape(RULES_FIRST)))
        for _ in range(commands_after):
            cluster.do(AllocateProducerIds(count=1))
        records = cluster.records
        if is_one_append:
            asked_at = records[2].position
            records = [*records[:3], *(replace(record, position=asked_at) for record in records[3:])]
        reader = Follower(IDENTITY)
        reader.receive([record for record in records if record.position <= records[2].position])
        return records, digest(reader.state)

    @pytest.mark.parametrize("is_one_append", [False, True])
    @pytest.mark.parametrize("commands_after", [0, 1, 2])
    def test_s3_all_of_the_append_counts_and_nothing_else(self, commands_after: int, *, is_one_append: bool) -> None:
        records, expected = self.asked(commands_after=commands_after, is_one_append=is_one_append)
        follower = Follower(IDENTITY)
        follower.receive(records)
        assert follower.frozen is not None
        assert follower.frozen.digest() == expected

    def test_s3_so_does_a_reader_that_starts_behind_it(self) -> None:
        records, expected = self.asked(commands_after=1, is_one_append=False)
        follower = Follower(IDENTITY)
        follower.load(begin(records, position=4, appends=4), None)
        assert follower.frozen is not None
        assert follower.frozen.digest() == expected

    def test_s3_nothing_is_kept_for_a_repeat(self) -> None:
        cluster = Cluster.started()
        cluster.do(CompareDigest(shape=snapshot_shape(RULES_FIRST)))
        follower = Follower(IDENTITY)
        follower.receive(cluster.records)
        follower.frozen = None
        follower.receive([replace(cluster.records[-1], position=Position(4))])
        assert follower.frozen is None


class TestProgramsOfOtherVersions:
    def test_s3_an_entry_in_a_form_that_is_not_known_stops_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster = Cluster.started()
        older = Follower(IDENTITY, RULES_FIRST)
        older.receive(cluster.records)
        cluster.do(create("u", topic_id=TopicId(bytes([9] * 16))))
        proposal = replace(decode(cluster.records[-1]), form=RULES_NEWEST)
        monkeypatch.setattr(apply_module, "decode", lambda payload: proposal)
        with pytest.raises(LedgerCorrupt, match=f"position 3 has the form of rules {RULES_NEWEST}, this program knows"):
            older.receive(cluster.records)
        assert list(older.state.topic_ids) == ["t"]

    def test_s3_what_a_program_knows_is_what_it_serves(self) -> None:
        cluster = Cluster()
        cluster.do(start(rules=RULES_NEWEST))
        cluster.do(RaiseRules(rules_version=RULES_NEWEST))
        Follower(IDENTITY).receive(cluster.records)
        with pytest.raises(LedgerCorrupt, match=f"rules {RULES_NEWEST} are in force, this program knows {RULES_FIRST}"):
            Follower(IDENTITY, RULES_FIRST).receive(cluster.records)
