"""Who counts as gone in a consumer group, and when: silence, revocations that come late, and the next coordinator."""

from coordinator.commands.group_values import heard_until_s
from protocol.limits import LEDGER_SESSION_SECONDS
from tests.support.groups.consumer_groups import beat, one, owned, two


class TestTime:
    def test_a_silent_member_is_fenced_after_the_session_time_out(self) -> None:
        group = two()
        group.now_s = 44.9
        group.say(beat("b", 3))
        assert group.expire() == []
        group.now_s = 45.0
        assert group.expire() == ["a"]
        group.say(beat("b", 3))
        assert group.has("b") == owned(t=[0, 1, 2, 3])

    def test_a_refused_heartbeat_does_not_count(self) -> None:
        group = one()
        group.now_s = 40
        group.refused(beat("a", 9))
        group.now_s = 45
        assert group.expire() == ["a"]

    def test_members_that_go_silent_together_go_together(self) -> None:
        group = two()
        group.now_s = 50
        assert group.expire() == ["a", "b"]
        assert group.group.epoch == 4

    def test_who_does_not_give_partitions_up_in_time_is_fenced(self) -> None:
        group = one(4)
        group.say(beat("b"))
        group.say(beat("a", 2))
        for group.now_s in (30.0, 59.0):
            group.say(beat("a", 2))
            group.say(beat("b", 3))
            assert group.expire() == []
        group.now_s = 60.0
        assert group.expire() == ["a"]

    def test_who_gave_them_up_is_not(self) -> None:
        group = one(4)
        group.say(beat("b"))
        group.say(beat("a", 2))
        group.now_s = 40
        group.say(beat("a", 2, said=owned(t=[0, 1])))
        group.say(beat("b", 3))
        group.now_s = 70
        assert group.expire() == []

    def test_who_went_on_to_another_revocation_has_its_time_again(self) -> None:
        group = two()
        group.live.revocations["a"] = 2, 10.0
        group.now_s = 20
        assert group.expire() == []

    def test_the_next_coordinator_gives_everybody_a_whole_time(self) -> None:
        group = one(4)
        group.say(beat("b"))
        group.say(beat("a", 2))
        group.now_s = 100
        group.move_coordinator()
        assert group.expire() == []
        group.now_s = 144
        group.say(beat("a", 2))
        group.say(beat("b", 3))
        assert group.expire() == []
        group.now_s = 160
        assert group.expire() == ["a"]

    def test_who_may_be_heard_by_the_coordinator_before_is_not_silent_yet(self) -> None:
        group = two()
        group.move_coordinator(heard_s=10)
        group.now_s = 1
        group.say(beat("a", 3))  # and goes back to the one before, which answers it until 10
        group.say(beat("c"))
        group.now_s = 46
        assert group.expire() == ["c"]
        group.say(beat("b", 3))
        group.now_s = 54.9
        assert group.expire() == []
        group.now_s = 55
        assert group.expire() == ["a"]

    def test_nor_late_with_what_it_was_asked_to_do(self) -> None:
        group = two()
        group.move_coordinator(heard_s=10)
        group.now_s = 0.5
        group.say(beat("c", rebalance_timeout_ms=5_000))
        for name in ("a", "b"):
            group.say(beat(name, 3, rebalance_timeout_ms=5_000))
        assert group.live.revocations
        group.now_s = 14.9
        assert group.expire() == []
        group.now_s = 15
        assert group.expire()

    def test_the_next_coordinator_fences_who_never_comes(self) -> None:
        group = two()
        group.now_s = 100
        group.move_coordinator()
        group.expire()
        group.now_s = 145
        assert group.expire() == ["a", "b"]
        group.now_s = 500
        assert group.expire() == []


def test_s4_the_coordinator_before_may_hear_members_for_a_lease() -> None:
    assert heard_until_s(5.0) == 5.0 + LEDGER_SESSION_SECONDS
