"""Who gets memory for a large frame, who waits, and that somebody always gets it."""

from protocol.limits import MIB, RECEIVE_BUFFER_BYTES, RECEIVE_PROGRESS_BYTES_MIN
from protocol.request_memory import RequestMemory


def claim(memory: RequestMemory[str], holder: str, count: int, *, may_use_reserve: bool = False) -> bool:
    return memory.claim(holder, count, may_use_reserve=may_use_reserve)


class TestBudget:
    def test_frames_get_memory_up_to_the_last_byte_of_the_budget(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        assert claim(memory, "a", 6)
        assert claim(memory, "b", 4)
        assert memory.is_full
        assert not claim(memory, "c", 1)
        assert (memory.used_bytes, memory.has_waiting, memory.is_waiting("c")) == (10, True, True)

    def test_small_frames_count_and_never_wait(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(12)
        assert (memory.used_bytes, memory.is_full, memory.has_waiting) == (12, True, False)

    def test_the_budget_is_that_of_the_limits(self) -> None:
        memory = RequestMemory[str]()
        assert claim(memory, "a", 192 * MIB)
        assert memory.is_full


class TestContention:
    def test_it_is_told_from_a_full_budget_until_it_is_settled(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(9)
        assert not memory.is_contended
        memory.count(1)
        memory.count(-1)
        assert (memory.is_contended, memory.is_full) == (True, False)
        memory.settle()
        assert not memory.is_contended

    def test_it_lasts_while_somebody_waits(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(8)
        assert not claim(memory, "a", 3)
        memory.settle()
        assert memory.is_contended
        memory.forget("a")
        memory.settle()
        assert not memory.is_contended

    def test_it_lasts_while_the_reserve_is_taken(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(8)
        assert claim(memory, "a", 3, may_use_reserve=True)
        memory.count(-8)
        memory.settle()
        assert memory.is_contended


class TestReserve:
    def test_one_frame_is_let_in_beyond_the_budget_and_no_second_one(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(10)
        assert claim(memory, "a", 7, may_use_reserve=True)
        assert not claim(memory, "b", 7, may_use_reserve=True)
        assert (memory.used_bytes, memory.reserve_holder) == (17, "a")

    def test_it_is_not_for_a_frame_that_would_wait_behind_others(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(10)
        assert not claim(memory, "a", 1)
        assert memory.reserve_holder is None

    def test_it_is_not_used_while_there_is_room(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        assert claim(memory, "a", 10, may_use_reserve=True)
        assert memory.reserve_holder is None

    def test_it_takes_nothing_from_the_others(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(8)
        assert claim(memory, "a", 7, may_use_reserve=True)
        assert not memory.is_full
        assert claim(memory, "b", 2)
        assert (memory.is_full, memory.used_bytes) == (True, 17)
        memory.count(-8)
        assert not memory.is_full

    def test_what_it_leaves_behind_is_held_to_the_budget_again(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(10)
        claim(memory, "a", 7, may_use_reserve=True)
        memory.count(-7)
        assert not memory.is_full
        memory.leave_reserve("a")
        assert memory.is_full

    def test_only_its_holder_gives_it_back(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(10)
        claim(memory, "a", 7, may_use_reserve=True)
        memory.leave_reserve("b")
        assert memory.reserve_holder == "a"
        memory.leave_reserve("a")
        memory.count(-7)
        assert claim(memory, "b", 7, may_use_reserve=True)


class TestProgress:
    def test_a_frame_has_a_minute_to_arrive_looked_at_every_ten_seconds(self) -> None:
        assert RequestMemory[str]().bytes_due("a", 60 * MIB) == 10 * MIB

    def test_it_has_a_third_of_that_in_the_reserve(self) -> None:
        memory = RequestMemory[str](bytes_max=0)
        assert claim(memory, "a", 60 * MIB, may_use_reserve=True)
        assert memory.bytes_due("a", 60 * MIB) == 30 * MIB

    def test_however_small_it_is_it_goes_on(self) -> None:
        assert RequestMemory[str]().bytes_due("a", 200_000) == RECEIVE_PROGRESS_BYTES_MIN


class TestWaiting:
    def test_while_the_reserve_is_free_everybody_may_claim_again_the_oldest_first(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(10)
        for holder in ("a", "b", "a"):
            claim(memory, holder, 9)
        assert memory.claimants() == ["a", "b"]

    def test_while_it_is_taken_those_may_claim_whose_frames_fit(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(10)
        claim(memory, "r", 1, may_use_reserve=True)
        for holder, count in (("a", 9), ("b", 2), ("c", 3)):
            assert not claim(memory, holder, count)
        memory.count(-4)
        assert memory.claimants() == ["b", "c"]
        assert claim(memory, "c", 3)
        assert memory.claimants() == []
        assert not memory.is_waiting("c")

    def test_who_wants_no_more_waits_no_longer_and_keeps_what_it_has(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(10)
        claim(memory, "a", 1, may_use_reserve=True)
        claim(memory, "b", 1)
        for holder in ("a", "b"):
            memory.stop_waiting(holder)
        assert (memory.reserve_holder, memory.used_bytes, memory.has_waiting) == ("a", 11, False)

    def test_who_is_gone_waits_no_longer_and_leaves_the_reserve(self) -> None:
        memory = RequestMemory[str](bytes_max=10)
        memory.count(10)
        claim(memory, "a", 1, may_use_reserve=True)
        claim(memory, "b", 1)
        memory.forget("a")
        memory.forget("b")
        assert (memory.reserve_holder, memory.has_waiting) == (None, False)


class TestLentBuffers:
    def test_they_are_lent_up_to_their_budget_and_take_nothing_from_requests(self) -> None:
        memory: RequestMemory[str] = RequestMemory(bytes_max=10, lent_bytes_max=2 * RECEIVE_BUFFER_BYTES + 1)
        assert [memory.lend_buffer() for _ in range(3)] == [True, True, False]
        assert (memory.lent_bytes, memory.used_bytes) == (2 * RECEIVE_BUFFER_BYTES, 0)
        memory.return_buffer()
        assert memory.lend_buffer()
