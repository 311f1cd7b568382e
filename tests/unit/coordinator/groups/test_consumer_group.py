"""A live consumer group: what it answers heartbeats, when its epoch rises, and who is taken out of it.

Rules and their source: org.apache.kafka.coordinator.group.GroupMetadataManager and GroupCoordinatorService (Kafka 4.3);
KIP-848; conversations that were recorded from Kafka 4.3.1 stand in tests/compat/protocol_diff as `live.*`.
"""

from dataclasses import replace

import pytest
from msgspec import structs

from coordinator.commands.consumer_group_values import (
    ClassicProtocols,
    ConsumerGroup,
    GroupPhase,
    MemberState,
)
from coordinator.groups.consumer_group import LiveConsumerGroup
from protocol.errors import ErrorCode
from protocol.limits import CONSUMER_GROUP_ASSIGNED_AT_ONCE_MAX
from tests.support.groups.consumer_groups import CONFIG, Coordinated, beat, one, owned, two


class TestJoining:
    def test_the_first_member_gets_everything_at_epoch_2(self) -> None:
        """Recorded: live.join."""
        group = Coordinated({"t": 2})
        answer = group.say(beat("a"))
        assert (answer.member_id, answer.epoch, answer.heartbeat_interval_ms) == ("a", 2, 5_000)
        assert group.has("a") == owned(t=[0, 1])
        assert group.group.phase() is GroupPhase.STABLE

    def test_a_heartbeat_without_news_is_answered_shortly_and_costs_nothing(self) -> None:
        group = one()
        answer = group.say(beat("a", 2))
        assert (answer.epoch, answer.assigned) == (2, None)
        assert group.changes_count == 1

    def test_a_full_request_is_told_everything(self) -> None:
        """After an error a client sends all fields, and wants to know all."""
        group = one()
        full = beat("a", 2, names=["t"], said=owned(t=[0, 1]), rebalance_timeout_ms=60_000)
        assert group.say(full).assigned is not None
        assert group.say(replace(full, names=None, regex="")).assigned is not None

    def test_an_unknown_member_is_told_so(self) -> None:
        """Recorded: live.leave, the third answer."""
        assert one().refused(beat("nobody", 5)) is ErrorCode.unknown_member_id

    def test_a_topic_that_does_not_exist_yet_is_assigned_when_it_does(self) -> None:
        group = Coordinated({})
        assert group.say(beat("a")).assigned == ()
        group.topics["t"] = 1
        answer = group.say(beat("a", 2))
        assert (answer.epoch, group.has("a")) == (3, owned(t=[0]))

    def test_a_full_group_takes_nobody_else_in(self) -> None:
        group = two()
        group.config = replace(CONFIG, max_size=2)
        assert group.refused(beat("c")) is ErrorCode.group_max_size_reached
        group.say(beat("a", 3))

    def test_a_fenced_member_joins_again_as_itself(self) -> None:
        """KIP-848: fenced members come back with epoch 0 and nothing."""
        group = two()
        answer = group.say(beat("a"))
        assert (answer.epoch, answer.assigned is not None, group.has("a")) == (3, True, owned(t=[0, 1]))

    def test_what_a_member_does_not_say_stays(self) -> None:
        group = Coordinated({"t": 1})
        group.say(beat("a", rack="r", assignor="range", instance="i"))
        before = group.group.members["a"]
        group.say(beat("a", 2, instance="i"))
        assert group.group.members["a"] == before
        group.say(beat("a", 2, instance="i", rack="s", rebalance_timeout_ms=5))
        assert group.group.members["a"] == structs.replace(before, rack_id="s", rebalance_timeout_ms=5)
        assert group.group.epoch == 2


class TestRebalancing:
    def test_a_second_member_waits_until_the_first_gives_up_its_share(self) -> None:
        group = one(4)
        answer = group.say(beat("b"))
        assert (answer.epoch, answer.assigned) == (3, ())
        assert group.group.phase() is GroupPhase.RECONCILING
        answer = group.say(beat("a", 2))
        assert (answer.epoch, group.has("a")) == (2, owned(t=[0, 1]))
        assert group.say(beat("b", 3)).assigned is None
        answer = group.say(beat("a", 2, said=owned(t=[0, 1])))
        assert (answer.epoch, answer.assigned) == (3, None)
        answer = group.say(beat("b", 3))
        assert (answer.epoch, group.has("b")) == (3, owned(t=[2, 3]))
        assert group.group.phase() is GroupPhase.STABLE

    def test_who_stays_gets_what_a_leaver_had(self) -> None:
        group = two()
        answer = group.say(beat("a", -1))
        assert (answer.member_id, answer.epoch, answer.heartbeat_interval_ms) == ("a", -1, 0)
        assert group.group.phase() is GroupPhase.ASSIGNING
        answer = group.say(beat("b", 3))
        assert (answer.epoch, group.has("b")) == (4, owned(t=[0, 1, 2, 3]))

    def test_the_last_one_to_leave_leaves_an_empty_group(self) -> None:
        group = one()
        group.say(beat("a", -1))
        assert (group.group.phase(), group.group.epoch) == (GroupPhase.EMPTY, 3)
        assert group.refused(beat("a", -1)) is ErrorCode.unknown_member_id

    def test_another_subscription_raises_the_epoch_and_is_followed(self) -> None:
        group = one()
        answer = group.say(beat("a", 2, names=["u"]))
        assert (answer.epoch, answer.assigned, group.group.epoch) == (2, (), 3)
        assert group.group.assignment("a").state is MemberState.UNREVOKED_PARTITIONS
        answer = group.say(beat("a", 2, said=()))
        assert (answer.epoch, group.has("a")) == (3, owned(u=[0, 1]))

    def test_a_topic_that_grows_is_noticed_with_the_next_heartbeat(self) -> None:
        group = one()
        group.topics["t"] = 3
        answer = group.say(beat("a", 2))
        assert (answer.epoch, group.has("a")) == (3, owned(t=[0, 1, 2]))

    def test_a_topic_that_goes_is_given_up(self) -> None:
        group = one()
        del group.topics["t"]
        group.say(beat("a", 2))
        answer = group.say(beat("a", 2, said=()))
        assert (answer.epoch, group.has("a")) == (3, ())

    def test_what_most_members_ask_for_assigns(self) -> None:
        group = Coordinated({"t": 3, "u": 3})
        group.say(beat("a", names="tu", assignor="range"))
        group.say(beat("b", names="tu", assignor="range"))
        group.say(beat("c", names="tu", assignor="uniform"))
        assert group.group.targets["b"] == owned(t=[1], u=[1])


class TestLargeGroups:
    """KIP-1263: not every member that comes has the whole assignment made again."""

    def large(self) -> Coordinated:
        group = Coordinated({"t": CONSUMER_GROUP_ASSIGNED_AT_ONCE_MAX})
        group.say(beat("a"))
        return group

    def test_who_comes_soon_after_the_last_assignment_waits_for_the_next(self) -> None:
        group = self.large()
        answer = group.say(beat("b"))
        assert (answer.epoch, group.group.epoch, group.group.target_epoch) == (2, 3, 2)
        group.now_s = 0.9
        group.take(group.live.assign(group.config, group.find_topic, group.now_s))
        assert group.group.target_epoch == 2
        group.now_s = 1.0
        group.take(group.live.assign(group.config, group.find_topic, group.now_s))
        assert (group.group.target_epoch, len(group.group.targets)) == (3, 2)
        group.take(group.live.assign(group.config, group.find_topic, group.now_s))

    def test_the_next_heartbeat_of_anybody_does_it_too(self) -> None:
        group = self.large()
        group.say(beat("b"))
        group.now_s = 1.0
        group.say(beat("a", 2))
        assert group.group.target_epoch == 3

    def test_members_of_the_classic_protocol_do_not_wait(self) -> None:
        group = self.large()
        found = group.group.members["a"]
        group.live.copy.put_member(structs.replace(found, classic=ClassicProtocols(session_timeout_ms=1, protocols=())))
        group.take(group.live.copy.take_change())
        group.say(beat("b"))
        assert group.group.target_epoch == 3

    def test_an_empty_group_is_assigned_nothing(self) -> None:
        group = self.large()
        group.say(beat("a", -1))
        group.now_s = 5.0
        group.take(group.live.assign(group.config, group.find_topic, group.now_s))
        assert group.group.target_epoch == 2


class TestEpochs:
    """Source: throwIfConsumerGroupMemberEpochIsInvalid."""

    def test_an_epoch_ahead_is_fenced(self) -> None:
        """Recorded: live.epoch-ahead."""
        assert one().refused(beat("a", 7)) is ErrorCode.fenced_member_epoch

    def test_an_epoch_behind_is_fenced(self) -> None:
        """Recorded: live.epoch-behind."""
        assert one().refused(beat("a", 1, said=())) is ErrorCode.fenced_member_epoch

    def test_the_epoch_before_is_taken_from_who_has_nothing_but_its_own(self) -> None:
        """The answer that told the new one may have been lost."""
        group = two()
        assert group.say(beat("a", 2, said=owned(t=[0]))).epoch == 3
        assert group.refused(beat("a", 2)) is ErrorCode.fenced_member_epoch
        assert group.refused(beat("a", 2, said=owned(t=[0, 3]))) is ErrorCode.fenced_member_epoch


class TestStaticMembers:
    def static(self) -> Coordinated:
        group = Coordinated({"t": 2})
        group.say(beat("a", instance="i"))
        return group

    def test_an_instance_that_is_there_is_not_given_away(self) -> None:
        """Recorded: live.static."""
        assert self.static().refused(beat("b", instance="i")) is ErrorCode.unreleased_instance_id

    def test_an_instance_that_went_away_for_a_while_comes_back_to_what_it_had(self) -> None:
        """Recorded: live.static. The group does not rebalance."""
        group = self.static()
        answer = group.say(beat("a", -2, instance="i"))
        assert (answer.member_id, answer.epoch) == ("a", -2)
        answer = group.say(beat("b", instance="i"))
        assert (answer.member_id, answer.epoch, group.has("b")) == ("b", 2, owned(t=[0, 1]))
        assert list(group.group.members) == ["b"]
        assert group.group.epoch == 2

    def test_an_instance_that_comes_back_wanting_something_else_makes_the_group_rebalance(self) -> None:
        group = self.static()
        group.topics["u"] = 1
        group.say(beat("a", -2, instance="i"))
        group.say(beat("b", instance="i", names=["u"]))
        assert (group.group.epoch, group.has("b")) == (3, owned(u=[0]))

    def test_the_instances_former_member_is_fenced(self) -> None:
        group = self.static()
        group.say(beat("a", -2, instance="i"))
        group.say(beat("b", instance="i"))
        assert group.refused(beat("a", 2, instance="i")) is ErrorCode.fenced_instance_id
        assert group.refused(beat("a", -1, instance="i")) is ErrorCode.fenced_instance_id
        assert group.refused(beat("a", 2)) is ErrorCode.unknown_member_id

    def test_an_instance_that_nobody_has_is_unknown(self) -> None:
        group = self.static()
        assert group.refused(beat("a", 2, instance="j")) is ErrorCode.unknown_member_id
        assert group.refused(beat("a", -2, instance="j")) is ErrorCode.unknown_member_id

    def test_who_went_away_for_a_while_cannot_go_on_at_its_epoch(self) -> None:
        group = self.static()
        group.say(beat("a", -2, instance="i"))
        assert group.refused(beat("a", 2, instance="i")) is ErrorCode.fenced_member_epoch

    def test_a_static_member_may_join_again_as_itself(self) -> None:
        group = self.static()
        assert group.say(beat("a", instance="i")).epoch == 2

    def test_a_static_member_may_leave_for_good(self) -> None:
        group = self.static()
        assert group.say(beat("a", -1, instance="i")).epoch == -1
        assert group.group.phase() is GroupPhase.EMPTY

    def test_a_dynamic_member_may_become_static_and_another_instance(self) -> None:
        group = one()
        group.say(beat("a", instance="i"))
        assert group.say(beat("a", 2, instance="i")).epoch == 2
        group.say(beat("a", instance="j"))
        assert group.refused(beat("a", 2, instance="i")) is ErrorCode.unknown_member_id


class TestRegularExpressions:
    """Source: maybeUpdateRegularExpressions, handleRegularExpressionsResult."""

    def resolve(self, group: Coordinated, *, are_topics_new: bool = False, **found: tuple[str, ...]) -> list[str]:
        """Look up what is due."""
        regexes = group.live.regexes.to_resolve(
            group.live.copy, group.config, group.now_s, are_topics_new=are_topics_new
        )
        if regexes:
            matches = {regex: found.get(regex, ()) for regex in regexes}
            group.resolve(matches)
        return regexes

    def test_a_member_gets_what_its_expression_matches_once_it_is_looked_up(self) -> None:
        group = Coordinated({"t": 2, "u": 1})
        answer = group.say(beat("a", regex="x"))
        assert (answer.epoch, answer.assigned) == (2, ())
        assert self.resolve(group, x=("t",)) == ["x"]
        assert group.group.phase() is GroupPhase.ASSIGNING
        answer = group.say(beat("a", 2))
        assert (answer.epoch, group.has("a")) == (3, owned(t=[0, 1]))

    def test_where_there_is_none_nothing_is_looked_up(self) -> None:
        group = one()
        assert not group.live.copy.has_regexes
        assert self.resolve(group, are_topics_new=True) == []

    def test_names_and_an_expression_are_put_together(self) -> None:
        group = Coordinated({"t": 2, "u": 1})
        group.say(beat("a", names=["u"], regex="x"))
        self.resolve(group, x=("t",))
        group.say(beat("a", 2))
        assert group.has("a") == owned(t=[0, 1], u=[0])

    def test_an_expression_that_cannot_be_read_is_refused(self) -> None:
        """Recorded: live.regex."""
        group = Coordinated({"t": 1}, problems={"(": "missing )"})
        assert group.refused(beat("a", regex="(")) is ErrorCode.invalid_regular_expression

    def test_a_group_has_no_more_expressions_than_are_looked_up_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("coordinator.groups.consumer_group_regexes.CONSUMER_GROUP_REGEXES_MAX", 2)
        group = Coordinated({"t": 1})
        group.say(beat("a", regex="x"))
        group.say(beat("b", regex="y"))
        assert group.refused(beat("c", regex="z")) is ErrorCode.group_max_size_reached
        group.say(beat("c", regex="x"))
        assert sorted(group.group.members) == ["a", "b", "c"]

    def test_an_expression_that_another_has_takes_effect_at_once(self) -> None:
        group = Coordinated({"t": 2})
        group.say(beat("a", regex="x"))
        self.resolve(group, x=("t",))
        group.problems = {"x": "nobody asks"}
        group.say(beat("b", regex="x"))
        assert (group.group.epoch, group.group.targets["b"]) == (4, owned(t=[1]))

    def test_one_that_waits_to_be_looked_up_raises_no_epoch_yet(self) -> None:
        group = one()
        group.say(beat("b", regex="x"))
        assert (group.group.epoch, group.epoch("b")) == (2, 2)

    def test_without_its_expression_a_member_loses_what_it_matched(self) -> None:
        group = Coordinated({"t": 2})
        group.say(beat("a", regex="x"))
        self.resolve(group, x=("t",))
        group.say(beat("a", 2))
        group.say(beat("a", 3, regex=""))
        assert (group.group.epoch, group.group.regexes) == (4, {})
        group.say(beat("a", 3, said=()))
        assert group.has("a") == ()

    def test_what_an_expression_gave_goes_to_others_where_the_next_one_matches_nothing(self) -> None:
        group = Coordinated({"t": 2})
        group.say(beat("a"))
        group.say(beat("b", regex="x", names=[]))
        self.resolve(group, x=("t",))
        group.say(beat("a", 2, said=owned(t=[0])))
        group.say(beat("b", 2))
        assert group.has("b") == owned(t=[1])
        group.say(beat("b", 3, regex="nothing"))
        group.say(beat("b", 3, said=()))
        group.now_s = 11
        self.resolve(group)
        group.say(beat("a", 3))
        assert group.has("a") == owned(t=[0, 1])

    def test_it_is_looked_up_again_when_there_are_other_topics(self) -> None:
        group = Coordinated({"t": 1})
        group.say(beat("a", regex="x"))
        self.resolve(group, x=("t",))
        group.topics["u"] = 1
        assert self.resolve(group, are_topics_new=True, x=("t", "u")) == []
        group.now_s = 10.1
        assert self.resolve(group, x=("t", "u")) == []
        assert self.resolve(group, are_topics_new=True, x=("t", "u")) == ["x"]
        group.say(beat("a", 2))
        assert group.has("a") == owned(t=[0], u=[0])

    def test_a_topic_that_grew_is_seen_when_it_is_looked_up_although_it_matches_the_same(self) -> None:
        group = Coordinated({"t": 1})
        group.say(beat("a", regex="x"))
        self.resolve(group, x=("t",))
        group.say(beat("a", 2))
        group.topics["t"] = 2
        group.now_s = 601
        assert self.resolve(group, x=("t",)) == ["x"]
        assert group.group.epoch == 4
        group.say(beat("a", 3))
        assert group.has("a") == owned(t=[0, 1])

    def test_it_is_looked_up_again_after_a_while_and_costs_nothing_where_nothing_changed(self) -> None:
        group = Coordinated({"t": 1})
        group.say(beat("a", regex="x"))
        self.resolve(group, x=("t",))
        group.say(beat("a", 2))
        count = group.changes_count
        group.now_s = 601
        assert self.resolve(group, x=("t",)) == ["x"]
        assert group.changes_count == count

    def test_one_that_nobody_wants_any_more_is_not_kept(self) -> None:
        group = Coordinated({"t": 1})
        group.say(beat("a", regex="x"))
        group.say(beat("b"))
        group.say(beat("a", -1))
        group.resolve({"x": ("t",)}, now_s=1.0)
        assert group.group.regexes == {}

    def test_the_next_coordinator_looks_again(self) -> None:
        group = Coordinated({"t": 1})
        group.say(beat("a", regex="x"))
        self.resolve(group, x=("t",))
        group.move_coordinator()
        assert self.resolve(group, x=("t",)) == ["x"]


def test_a_group_never_begins_below_the_generation_that_it_follows() -> None:
    group = Coordinated({"t": 1}, LiveConsumerGroup("g", ConsumerGroup(epoch=7, target_epoch=7), 0.0, is_new=True))
    assert group.say(beat("a")).epoch == 8
