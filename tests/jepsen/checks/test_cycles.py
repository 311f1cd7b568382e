"""Cycles of transactions: each kind once there and once, nearly the same, not."""

from tests.jepsen.checks.anomaly import Anomaly
from tests.jepsen.checks.cycles import cycles
from tests.jepsen.checks.history_fixtures import Made, read, sent
from tests.jepsen.graph.dependencies import PROCESS, REALTIME, WR, WW, dependencies

OTHER = "b-0"


def found(made: Made, *, has_ww: bool = True) -> list[Anomaly]:
    return list(cycles(made.history(), *made.known(), has_ww=has_ww))


def kinds(made: Made, *, has_ww: bool = True) -> list[str]:
    return sorted(anomaly.kind for anomaly in found(made, has_ww=has_ww))


class TestWriteCycle:
    def test_two_transactions_write_before_each_other(self) -> None:
        a, b = (sent(1, 0), sent(1, 1, key=OTHER)), (sent(2, 1), sent(2, 0, key=OTHER))
        made = Made().begun(0, *a).begun(1, *b).ended(0, *a).ended(1, *b)
        (cycle,) = found(made)
        assert (cycle.kind, cycle.calls) == ("G0", (0, 1))
        assert [step.relation for step in cycle.steps] == ["ww", "ww"]

    def test_one_writes_before_the_other_everywhere(self) -> None:
        a, b = (sent(1, 0), sent(1, 0, key=OTHER)), (sent(2, 1), sent(2, 1, key=OTHER))
        made = Made().begun(0, *a).begun(1, *b).ended(0, *a).ended(1, *b)
        assert kinds(made) == []

    def test_without_the_order_of_writes_there_is_none(self) -> None:
        a, b = (sent(1, 0), sent(1, 1, key=OTHER)), (sent(2, 1), sent(2, 0, key=OTHER))
        made = Made().begun(0, *a).begun(1, *b).ended(0, *a).ended(1, *b)
        assert kinds(made, has_ww=False) == []

    def test_writes_between_those_of_another_are_one(self) -> None:
        a, b = (sent(1, 0), sent(3, 2)), (sent(2, 1),)
        made = Made().begun(0, *a).begun(1, *b).ended(0, *a).ended(1, *b)
        assert kinds(made) == ["G0"]

    def test_a_process_writes_before_what_it_wrote_earlier(self) -> None:
        assert kinds(Made().did(0, sent(1, 1)).did(0, sent(2, 0))) == ["G0-process"]

    def test_a_process_writes_behind_what_it_wrote_earlier(self) -> None:
        assert kinds(Made().did(0, sent(1, 0)).did(0, sent(2, 1))) == []

    def test_a_call_writes_before_what_had_been_written_when_it_began(self) -> None:
        assert kinds(Made().did(0, sent(1, 1)).did(1, sent(2, 0))) == ["G0-realtime"]

    def test_a_call_writes_before_what_was_written_meanwhile(self) -> None:
        assert kinds(Made().begun(1, sent(2)).did(0, sent(1, 1)).ended(1, sent(2, 0))) == []


class TestCircularInformationFlow:
    def test_two_transactions_read_each_other(self) -> None:
        a, b = (sent(1, 0), read((0, 2), key=OTHER)), (sent(2, 0, key=OTHER), read((0, 1)))
        made = Made().begun(0, *a).begun(1, *b).ended(0, *a).ended(1, *b)
        (cycle,) = found(made, has_ww=False)
        assert (cycle.kind, [step.relation for step in cycle.steps]) == ("G1c", ["wr", "wr"])
        assert cycle.text.startswith("T2 (ok, process 0) sent value 1 to a-0, which T3 (ok, process 1) read; T3")

    def test_one_reads_the_other(self) -> None:
        a, b = (sent(1, 0),), (sent(2, 0, key=OTHER), read((0, 1)))
        made = Made().begun(0, *a).begun(1, *b).ended(0, *a).ended(1, *b)
        assert kinds(made, has_ww=False) == []

    def test_it_is_found_once_if_the_order_of_writes_is_looked_at_too(self) -> None:
        a, b = (sent(1, 0), read((0, 2), key=OTHER)), (sent(2, 0, key=OTHER), read((0, 1)))
        made = Made().begun(0, *a).begun(1, *b).ended(0, *a).ended(1, *b)
        assert kinds(made) == ["G1c"]

    def test_three_transactions_read_each_other_in_turn(self) -> None:
        made = Made()
        calls = [(sent(n, 0, key=f"{n}-0"), read((0, (n + 1) % 3), key=f"{(n + 1) % 3}-0")) for n in range(3)]
        for n, call in enumerate(calls):
            made.begun(n, *call)
        for n, call in enumerate(calls):
            made.ended(n, *call)
        (cycle,) = found(made, has_ww=False)
        assert (cycle.kind, set(cycle.calls), len(cycle.steps)) == ("G1c", {0, 1, 2}, 3)

    def test_reading_ones_own_is_none(self) -> None:
        assert kinds(Made().did(0, sent(1, 0), read((0, 1)))) == []

    def test_calls_that_failed_or_may_have_happened_take_part(self) -> None:
        a, b = (sent(1, 0), read((0, 2), key=OTHER)), (sent(2, 0, key=OTHER), read((0, 1)))
        made = Made().begun(0, *a).begun(1, *b).ended(0, *a, kind="fail").ended(1, *b, kind="info")
        assert kinds(made, has_ww=False) == ["G1c"]

    def test_one_reads_what_was_written_behind_its_own(self) -> None:
        a, b = (sent(1, 0), read((0, 2), key=OTHER)), (sent(3, 1), sent(2, 0, key=OTHER))
        made = Made().begun(0, *a).begun(1, *b).ended(0, *a).ended(1, *b)
        assert kinds(made) == ["G1c-ww"]
        assert kinds(made, has_ww=False) == []

    def test_a_process_reads_what_it_writes_later(self) -> None:
        made = Made().did(0, read((0, 1))).did(0, sent(1, 0))
        assert kinds(made, has_ww=False) == ["G1c-process"]

    def test_a_process_reads_what_it_wrote_earlier(self) -> None:
        assert kinds(Made().did(0, sent(1, 0)).did(0, read((0, 1))), has_ww=False) == []

    def test_a_call_reads_what_is_written_by_one_that_begins_after_its_end(self) -> None:
        made = Made().did(0, read((0, 1))).did(1, sent(1, 0))
        assert kinds(made, has_ww=False) == ["G1c-realtime"]

    def test_a_call_reads_what_is_written_meanwhile(self) -> None:
        made = Made().begun(0, read((0, 1))).did(1, sent(1, 0)).ended(0, read((0, 1)))
        assert kinds(made, has_ww=False) == []

    def test_the_end_of_a_call_that_is_not_ok_is_before_nothing(self) -> None:
        made = Made().did(0, read((0, 1)), kind="info").did(1, sent(1, 0))
        assert kinds(made, has_ww=False) == []

    def test_time_and_the_order_of_writes_close_one(self) -> None:
        a, b, c = (sent(2, 1),), (read((1, 2)), sent(9, 0, key=OTHER)), (sent(1, 0),)
        made = Made().did(0, *a).did(1, *b).did(2, *c)
        assert kinds(made) == ["G0-realtime"]
        made = Made().begun(0, *a).did(1, *b).did(2, *c).ended(0, *a)
        assert kinds(made) == ["G1c-ww-realtime"]
        assert kinds(made, has_ww=False) == []

    def test_a_process_and_the_order_of_writes_close_one(self) -> None:
        made = Made().begun(0, sent(2)).did(1, read((1, 2))).did(1, sent(1, 0)).ended(0, sent(2, 1))
        assert kinds(made) == ["G1c-ww-process"]


class TestDependencies:
    def test_what_others_imply_is_no_edge_of_time(self) -> None:
        made = Made().did(0, sent(1)).did(1, sent(2)).did(2, sent(3))
        graph = dependencies(made.history(), *made.known(), has_ww=True)
        assert graph == [{1: REALTIME}, {2: REALTIME}, {}]

    def test_what_overlaps_the_next_has_an_edge_to_the_one_behind(self) -> None:
        made = Made().begun(0, sent(1)).begun(1, sent(2)).ended(0, sent(1)).begun(0, sent(3)).ended(1, sent(2))
        made.ended(0, sent(3)).did(2, sent(4))
        graph = dependencies(made.history(), *made.known(), has_ww=True)
        assert graph == [{2: PROCESS | REALTIME}, {3: REALTIME}, {3: REALTIME}, {}]

    def test_an_edge_may_have_several_reasons(self) -> None:
        made = Made().did(0, sent(1, 0)).did(0, sent(2, 1), read((0, 1)))
        graph = dependencies(made.history(), *made.known(), has_ww=True)
        assert graph == [{1: WW | WR | PROCESS | REALTIME}, {}]

    def test_reading_ones_own_is_no_edge(self) -> None:
        made = Made().did(0, sent(1, 0), read((0, 1)))
        assert dependencies(made.history(), *made.known(), has_ww=True) == [{}]

    def test_the_order_of_a_process_is_that_of_its_calls_that_are_ok(self) -> None:
        made = Made().did(0, sent(1)).did(0, sent(2), kind="info").did(0, sent(3), kind="fail").did(0, sent(4))
        graph = dependencies(made.history(), *made.known(), has_ww=True)
        assert graph == [{1: REALTIME, 2: REALTIME, 3: PROCESS | REALTIME}, {}, {}, {}]

    def test_assigning_and_crashing_take_no_part(self) -> None:
        made = Made().did(0, sent(1)).assigned(0, "a-0").begun(0, f="crash").ended(0)
        assert dependencies(made.history(), *made.known(), has_ww=True) == [{}, {}, {}]

    def test_a_call_that_never_ended_comes_after_what_had_ended(self) -> None:
        made = Made().did(0, sent(1)).begun(1, sent(2))
        assert dependencies(made.history(), *made.known(), has_ww=True) == [{1: REALTIME}, {}]
