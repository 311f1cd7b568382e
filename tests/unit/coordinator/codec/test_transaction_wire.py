"""Entries about transactions that cannot be read. Their bytes are kept with those of the other commands."""

import struct

import msgspec
import pytest

from coordinator.commands.commands import Proposal
from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.ledger.port import LedgerCorrupt
from tests.support.commands.commands import TOPIC
from tests.support.commands.entries import decode, encode, plain
from tests.support.commands.every_command import COMMANDS


def changed(wire: object, index: int, value: object) -> bytes:
    """An entry whose command has another value at `index`."""
    assert isinstance(wire, list)
    command = [*wire]
    command[index] = value
    return plain([None, command])


class TestUnreadableTransactions:
    def wire(self, name: str) -> list[object]:
        _, command = msgspec.msgpack.decode(
            encode(Proposal(time_ms=None, command=COMMANDS[name]), RULES_CHECKED_STORAGE)[2:]
        )
        assert isinstance(command, list)
        return command

    @pytest.mark.parametrize("version", [0, 3])
    def test_a_version_that_is_none(self, version: int) -> None:
        with pytest.raises(LedgerCorrupt, match=f"Invalid enum value {version}"):
            decode(changed(self.wire("end_transaction"), 4, version))

    def test_texts_that_are_not_one_for_each_offset(self) -> None:
        with pytest.raises(LedgerCorrupt, match="1 texts for 2 committed offsets"):
            decode(changed(self.wire("commit_transactional_offsets"), 10, ["x"]))

    def test_an_offset_of_a_topic_that_is_not_listed(self) -> None:
        with pytest.raises(LedgerCorrupt, match="a pending offset of topic 1 where 1 are listed"):
            decode(changed(self.wire("commit_transactional_offsets"), 8, [TOPIC]))

    def test_a_partition_beyond_31_bits(self) -> None:
        wire = self.wire("commit_transactional_offsets")
        columns = wire[9]
        assert isinstance(columns, list)
        with pytest.raises(LedgerCorrupt, match="a partition index of 2147483648"):
            decode(changed(wire, 9, [columns[0], struct.pack("<II", 0, 1 << 31), *columns[2:]]))

    @pytest.mark.parametrize(("index", "value"), [(2, -2), (3, -2), (3, 1 << 15), (4, [[b"short", 0]]), (6, [-1, 0])])
    def test_a_value_out_of_range(self, index: int, value: object) -> None:
        with pytest.raises(LedgerCorrupt, match="cannot be read"):
            decode(changed(self.wire("add_to_transaction"), index, value))
