"""Which requests read wanted ranges."""

from hypothesis import given
from hypothesis import strategies as st

from storage.read_plan import Piece, PlannedRead, plan_reads, slice_read
from storage.refs import ByteRange


def wanted(key: str, byte_first: int, byte_count: int) -> ByteRange:
    return ByteRange(key=key, byte_first=byte_first, byte_count=byte_count)


def reads(*ranges: ByteRange, gap_bytes_max: int = 10, read_bytes_max: int = 100) -> list[PlannedRead]:
    return plan_reads(ranges, gap_bytes_max=gap_bytes_max, read_bytes_max=read_bytes_max)


def test_nothing_wanted_is_nothing_read() -> None:
    assert reads() == []


def test_neighbours_share_a_request() -> None:
    assert reads(wanted("a", 100, 20), wanted("a", 120, 5)) == [
        PlannedRead(
            read=wanted("a", 100, 25),
            pieces=(
                Piece(range_index=0, byte_first=0, byte_count=20),
                Piece(range_index=1, byte_first=20, byte_count=5),
            ),
        )
    ]


def test_a_gap_is_read_along_up_to_its_limit() -> None:
    assert [p.read for p in reads(wanted("a", 0, 10), wanted("a", 20, 10))] == [wanted("a", 0, 30)]
    assert [p.read for p in reads(wanted("a", 0, 10), wanted("a", 21, 10))] == [wanted("a", 0, 10), wanted("a", 21, 10)]


def test_a_request_stays_within_its_limit() -> None:
    assert [p.read for p in reads(wanted("a", 0, 50), wanted("a", 50, 50))] == [wanted("a", 0, 100)]
    assert [p.read for p in reads(wanted("a", 0, 50), wanted("a", 50, 51))] == [wanted("a", 0, 50), wanted("a", 50, 51)]


def test_a_range_above_the_limit_is_read_whole_and_alone() -> None:
    assert [p.read for p in reads(wanted("a", 0, 10), wanted("a", 10, 500), wanted("a", 510, 10))] == [
        wanted("a", 0, 10),
        wanted("a", 10, 500),
        wanted("a", 510, 10),
    ]


def test_ranges_that_overlap_or_repeat_are_read_once() -> None:
    planned = reads(wanted("a", 0, 30), wanted("a", 10, 5), wanted("a", 0, 30), wanted("a", 20, 20))
    assert [p.read for p in planned] == [wanted("a", 0, 40)]
    assert {(piece.range_index, piece.byte_first, piece.byte_count) for piece in planned[0].pieces} == {
        (0, 0, 30),
        (1, 10, 5),
        (2, 0, 30),
        (3, 20, 20),
    }


def test_objects_come_as_first_wanted_and_their_reads_by_position() -> None:
    planned = reads(wanted("b", 500, 1), wanted("a", 0, 1), wanted("b", 0, 1))
    assert [p.read for p in planned] == [wanted("b", 0, 1), wanted("b", 500, 1), wanted("a", 0, 1)]


def test_the_default_limits_join_what_lies_close() -> None:
    assert len(plan_reads([wanted("a", 0, 1000), wanted("a", 100_000, 1000)])) == 1
    assert len(plan_reads([wanted("a", 0, 1000), wanted("a", 5_000_000, 1000)])) == 2


@given(
    ranges=st.lists(
        st.builds(wanted, st.sampled_from("ab"), st.integers(0, 200), st.integers(0, 60)), min_size=1, max_size=30
    ),
    gap_bytes_max=st.integers(0, 50),
    read_bytes_max=st.integers(0, 120),
)
def test_every_wanted_range_is_cut_out_exactly_once(
    ranges: list[ByteRange], gap_bytes_max: int, read_bytes_max: int
) -> None:
    objects = {"a": bytes(range(256)) * 2, "b": bytes(reversed(range(256))) * 2}
    planned = plan_reads(ranges, gap_bytes_max=gap_bytes_max, read_bytes_max=read_bytes_max)
    answers: dict[int, bytes] = {}
    for read in planned:
        byte_first, byte_count = read.read.byte_first, read.read.byte_count
        assert (
            byte_count <= read_bytes_max
            or len({(p.byte_first, p.byte_count) for p in read.pieces}) == 1
            or any(piece.byte_count == byte_count for piece in read.pieces)
        )
        for index, piece in slice_read(read, objects[read.read.key][byte_first : byte_first + byte_count]):
            assert index not in answers
            answers[index] = bytes(piece)
    assert answers == {
        index: objects[r.key][r.byte_first : r.byte_first + r.byte_count] for index, r in enumerate(ranges)
    }
