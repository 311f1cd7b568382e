"""The bytes of a ledger in a journal."""

from collections.abc import Callable

import msgspec
import pytest

from coordinator.ledger.journal_codec import (
    StoredGroup,
    StoredState,
    decode_group,
    decode_state,
    encode_group,
    encode_state,
    first_state,
    stored_pointer,
)
from coordinator.ledger.port import (
    Head,
    LedgerEntry,
    LedgerIdentity,
    LedgerRecord,
    NewerRules,
    SnapshotPointer,
    position_first,
)
from protocol.decoding import Undecodable
from protocol.types import Position, SessionId

GROUP = StoredGroup(
    position=Position(0x0102),
    appends_count=3,
    state_number=4,
    session=SessionId(5),
    entries=(LedgerEntry(number=6, payload=b"six"), LedgerEntry(number=7, payload=b"")),
)
IDENTITY = LedgerIdentity(cluster_id="c", incarnation=2, bucket_id="b")
POINTER = SnapshotPointer(position=Position(9), object_key="k", appends_count=8, digest=b"\x00d")


class TestGroup:
    def test_it_has_literal_bytes(self) -> None:
        numbers = (0x0102, 3, 4, 5, 6)
        lengths = b"\x02\0\0\0\x03\0\0\0\0\0\0\0"
        literal = b"\x01" + b"".join(number.to_bytes(8, "little") for number in numbers) + lengths + b"six"
        assert b"".join(encode_group(GROUP)) == literal
        assert decode_group(literal) == GROUP

    def test_its_records_share_position_and_session(self) -> None:
        assert GROUP.records() == (
            LedgerRecord(position=Position(0x0102), session=SessionId(5), number=6, payload=b"six"),
            LedgerRecord(position=Position(0x0102), session=SessionId(5), number=7, payload=b""),
        )

    def test_one_that_is_cut_or_longer_is_not_decoded(self) -> None:
        encoded = b"".join(encode_group(GROUP))
        for other in (*(encoded[:end] for end in range(len(encoded))), encoded + b"x"):
            with pytest.raises(Undecodable):
                decode_group(other)


class TestState:
    def test_it_is_decoded_as_it_was(self) -> None:
        for pointer in (None, POINTER):
            state = first_state(IDENTITY, pointer, number=7)
            assert decode_state(encode_state(state)) == state
            assert (state.identity, state.snapshot, state.number, state.is_fenced) == (IDENTITY, pointer, 7, False)

    def test_an_incarnation_begins_where_the_last_one_ends(self) -> None:
        first = position_first(2)
        state = first_state(IDENTITY, None, number=1)
        assert state.head == Head(position=first, appends_count=0)
        assert (state.position_last, state.trimmed, state.trimmed_appends_count) == (first, first, 0)

    def test_literal_bytes_of_before_are_read(self) -> None:
        state = StoredState(
            number=7,
            cluster_id="c",
            incarnation=1,
            position_last=5,
            position=4,
            appends_count=3,
            trimmed=2,
            trimmed_appends_count=1,
            bucket_id="b",
            pointer=stored_pointer(POINTER),
        )
        literal = {
            "number": 7,
            "cluster_id": "c",
            "incarnation": 1,
            "position_last": 5,
            "position": 4,
            "appends_count": 3,
            "trimmed": 2,
            "trimmed_appends_count": 1,
            "bucket_id": "b",
            "is_fenced": False,
            "pointer": {"position": 9, "object_key": "k", "appends_count": 8, "digest": b"\x00d"},
        }
        assert encode_state(state) == b"\x01" + msgspec.msgpack.encode(literal)
        assert decode_state(b"\x01" + msgspec.msgpack.encode(literal)) == state

    def test_a_field_that_this_format_lacks_is_not_passed_over(self) -> None:
        stored = msgspec.msgpack.decode(encode_state(first_state(IDENTITY, POINTER, number=1))[1:])
        with pytest.raises(Undecodable):
            decode_state(b"\x01" + msgspec.msgpack.encode({**stored, "more": 1}))


class TestFormat:
    """A newer program's records are no damage: a recovery would begin the ledger again."""

    @pytest.mark.parametrize("decode", [decode_group, decode_state])
    def test_what_a_newer_program_wrote_says_so(self, decode: Callable[[bytes], object]) -> None:
        with pytest.raises(NewerRules, match="format 2, this program knows 1: use the version that wrote it"):
            decode(b"\x02what it means is not known here")

    @pytest.mark.parametrize("decode", [decode_group, decode_state])
    @pytest.mark.parametrize("payload", [b"", b"\0"])
    def test_a_record_without_a_format_is_damaged(self, decode: Callable[[bytes], object], payload: bytes) -> None:
        with pytest.raises(Undecodable, match="instead of its format"):
            decode(payload)
