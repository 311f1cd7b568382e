"""Every command as the bytes of an entry. The bytes themselves are kept in tests/golden/commands."""

import contextlib
import struct
from dataclasses import replace
from math import nan
from typing import cast

import cramjam
import pytest
from msgspec import structs

from coordinator.codec import codec as command_codec
from coordinator.codec.codec import COMPRESSED, FORMAT_CHECKED, Unwritable
from coordinator.commands.admin import (
    AlterClientQuotas,
    AlterConfigs,
    ConfigResourceType,
    CreatePartitions,
)
from coordinator.commands.commands import (
    AdvanceLogStart,
    AllocateProducerIds,
    Command,
    DeleteTopic,
    Proposal,
    ReportTime,
)
from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.ledger.port import LedgerCorrupt
from coordinator.security.quota_rules import QuotaEntity
from protocol.limits import LEDGER_ENTRY_UNPACKED_BYTES_MAX
from protocol.types import Milliseconds
from tests.golden import golden_bytes
from tests.support.commands.commands import (
    TOPIC,
    Batch,
    Chunk,
    commit,
    create,
    delete_before,
    retain,
)
from tests.support.commands.entries import decode, encode, plain
from tests.support.commands.every_command import CLASSIC, COMMANDS, COMMIT, UNCHECKED_COMMANDS, write_classic


class TestGoldenFiles:
    @pytest.mark.parametrize("name", UNCHECKED_COMMANDS)
    def test_an_entry_of_any_age_is_read(self, name: str) -> None:
        proposal = Proposal(time_ms=Milliseconds(1_700_000_000_000), command=COMMANDS[name])
        kept = golden_bytes(f"commands/{name}", encode(proposal, RULES_CHECKED_STORAGE))
        assert encode(decode(kept)) == encode(proposal)

    @pytest.mark.parametrize("name", COMMANDS)
    def test_a_time_that_nobody_checked_is_left_out(self, name: str) -> None:
        assert decode(encode(Proposal(time_ms=None, command=COMMANDS[name]))).time_ms is None


def test_commands_without_columns_come_back_equal() -> None:
    for name, command in COMMANDS.items():
        if not name.startswith("commit"):
            proposal = Proposal(time_ms=Milliseconds(3), command=command)
            assert decode(encode(proposal)) == proposal


def test_a_rebalance_that_is_due_is_kept() -> None:
    proposal = Proposal(time_ms=None, command=write_classic(structs.replace(CLASSIC, is_rebalance_due=True)))
    assert decode(encode(proposal)) == proposal


def test_small_entries_are_plain_and_large_ones_compressed() -> None:
    assert encode(Proposal(time_ms=None, command=COMMANDS["commit_chunks"]))[:2] == bytes([FORMAT_CHECKED, 0])
    assert encode(Proposal(time_ms=None, command=COMMANDS["commit_many_chunks"]))[:2] == bytes([2, COMPRESSED])


def compressed(frame: bytes, size: int) -> bytes:
    return bytes([1, COMPRESSED]) + struct.pack("<I", size) + frame


class TestUnreadableEntries:
    @pytest.mark.parametrize(
        ("payload", "message"),
        [
            (b"", "no header"),
            (b"\x01", "no header"),
            (b"\x03\x00\x92", "format 3; this program reads 1 and 2: it is damaged, or upgrade"),
            (b"\x01\x02\x92", "unknown flags 0x2"),
            (b"\x01\x00", "cannot be read"),
            (b"\x01\x00\xc1", "cannot be read"),
            (plain([5, [99]]), "cannot be read"),
            (plain([-5, [12]]), "cannot be read"),
            (plain([1 << 63, [12]]), "cannot be read"),
            (plain([5, [5, b"short"]]), "cannot be read"),
            (plain([5, [2, -1]]), "cannot be read"),
            (plain([5, [17, bytes(7)]]), "cannot be read"),
            (plain([5, [18, 1, bytes(31)]]), "cannot be read"),
            (b"\x01\x00\x92\x05\x92\x03\xa1\x80", "cannot be read"),
            (b"\x01\x00\x92\x05\x92\x09\x91\xa1\x80", "cannot be read"),
            (b"\x01\x01\x05", "ends before its size"),
            (compressed(b"", LEDGER_ENTRY_UNPACKED_BYTES_MAX + 1), "would unpack"),
            (compressed(b"no frame", 10), "cannot be unpacked"),
            (compressed(bytes(cramjam.zstd.compress(b"abc")), 2), "cannot be unpacked"),
            (compressed(bytes(cramjam.zstd.compress(b"abc")), 4), "unpacks to 3 bytes where 4"),
        ],
    )
    def test_the_message_says_what_is_wrong(self, payload: bytes, message: str) -> None:
        with pytest.raises(LedgerCorrupt, match=message):
            decode(payload)

    @pytest.mark.parametrize("name", UNCHECKED_COMMANDS)
    def test_without_a_checksum_a_flipped_bit_is_corruption_or_another_command(self, name: str) -> None:
        payload = encode(
            Proposal(time_ms=Milliseconds(1_700_000_000_000), command=COMMANDS[name]), RULES_CHECKED_STORAGE
        )
        for bit in range(16, len(payload) * 8, 1 + len(payload) // 40):
            damaged = bytearray(payload)
            damaged[bit // 8] ^= 1 << (bit % 8)
            with contextlib.suppress(LedgerCorrupt):
                decode(bytes(damaged))


class TestUnwritableCommands:
    """An entry that no agent can read would stop all of them for ever."""

    @pytest.mark.parametrize(
        ("command", "message"),
        [
            (commit(1, Chunk(batches=[Batch(producer=-2)])), "producer id below -1"),
            (commit(1, Chunk(batches=[Batch(records=0)])), "without records"),
            (commit(1, Chunk(batches=[Batch(records=1 << 31)])), "without records"),
            (commit(1, Chunk(batches=[Batch(records=1 << 32)])), "CommitChunks cannot be written"),
            (commit(1, Chunk(batches=[])), "have lengths"),
            (commit(1, Chunk(partition=1 << 31, batches=[Batch()])), "beyond 31 bits"),
            (commit(-1, Chunk(batches=[Batch()])), "cannot be read"),
            (replace(commit(1, Chunk(batches=[Batch()])), batch_crcs=bytes(5)), "5 bytes of CRCs of 1 batches"),
            (DeleteTopic(topic_id=type(TOPIC)(b"short")), "cannot be read"),
            (create("\ud800"), "CreateTopic cannot be written"),
            (delete_before(-1), "a log start of -1"),
            (delete_before(1, partition=1 << 31), "a partition index of 2147483648"),
            (AdvanceLogStart(topic_ids=(TOPIC,), topic=[1], partition=[0], log_start=[0]), "topic 1 where 1 are"),
            (AdvanceLogStart(topic_ids=(), topic=[], partition=[], log_start=[]), "have lengths"),
            (retain(-1), "cannot be read"),
            (AllocateProducerIds(count=1 << 64), "AllocateProducerIds cannot be written"),
            (replace(COMMIT, group=[2, 1, 1]), "group 2, topic 1 where 2 and 2"),
            (replace(COMMIT, topic=[2, 1, 1]), "group 1, topic 2 where 2 and 2"),
            (replace(COMMIT, partition=[0, 1 << 31, 1]), "a partition index of 2147483648"),
            (replace(COMMIT, metadata=("",)), "1 texts for 3 committed"),
            (CreatePartitions(topic_id=TOPIC, partition_count=1 << 31), "cannot be read"),
            (AlterClientQuotas(entity=(("user", "a"),), quotas=(("x", 0.0),)), "cannot be read"),
            (AlterClientQuotas(entity=(("user", "a"),), quotas=(("x", nan),)), "cannot be read"),
            (
                AlterConfigs(
                    resource_type=cast("ConfigResourceType", 3), resource_name="", is_whole=False, operations=()
                ),
                "AlterConfigs cannot be written: .*Invalid enum value 3",
            ),
            (create(retention_ms="1" * LEDGER_ENTRY_UNPACKED_BYTES_MAX), "would unpack to"),
        ],
    )
    def test_are_refused_at_the_proposer(self, command: Command, message: str) -> None:
        with pytest.raises(Unwritable, match=message):
            encode(Proposal(time_ms=None, command=command))

    @pytest.mark.parametrize("entity", [(), (("user", "a"), ("ip", "b")), (("user", "a"), ("user", "b"))])
    def test_quotas_of_what_is_no_entity_cannot_be_made_or_read(self, entity: QuotaEntity) -> None:
        with pytest.raises(ValueError, match="an entity of the types"):
            AlterClientQuotas(entity=entity, quotas=())
        with pytest.raises(LedgerCorrupt, match="an entity of the types"):
            decode(plain([None, [29, entity, []]]))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"members": CLASSIC.members[:1] * 2}, "out of order"),
            ({"leader": "c"}, "'c' leads 'range'"),
            ({"protocol": None}, "'b' leads None"),
            ({"members": ()}, "'b' leads 'range'"),
        ],
    )
    def test_a_group_that_contradicts_itself_cannot_be_made_or_read(
        self, changes: dict[str, object], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            write_classic(structs.replace(CLASSIC, **changes))
        group = list({**structs.asdict(CLASSIC), **changes}.values())
        with pytest.raises(LedgerCorrupt, match=message):
            decode(plain([None, [20, "g", 5, 2, group]]))

    def test_a_retention_of_other_partitions_than_topics_cannot_be_made_or_read(self) -> None:
        with pytest.raises(ValueError, match="2 ranges of partitions for 1 topics"):
            structs.replace(retain(1), partitions=((0, 1), (2, 3)))
        with pytest.raises(LedgerCorrupt, match="2 ranges of partitions for 1 topics"):
            decode(plain([None, [16, 1, [TOPIC], 1, 1, True, [[0, 1], [2, 3]]]]))

    def test_what_is_too_large_is_refused_before_it_is_read_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read: list[int] = []
        monkeypatch.setattr(command_codec, "_read_body", lambda body: read.append(len(body)))
        with pytest.raises(Unwritable, match="would unpack to"):
            encode(Proposal(time_ms=None, command=create(retention_ms="1" * LEDGER_ENTRY_UNPACKED_BYTES_MAX)))
        assert read == []

    def test_so_are_times_before_1970(self) -> None:
        with pytest.raises(Unwritable, match="cannot be read"):
            encode(Proposal(time_ms=Milliseconds(-1), command=ReportTime()))
