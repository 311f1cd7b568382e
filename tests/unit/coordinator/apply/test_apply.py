"""Entries, sessions and time: what holds for every command."""

import pytest

from coordinator.apply.apply import apply, apply_proposal
from coordinator.commands.admin import AlterConfigs, ConfigOperation, ConfigResourceType, OperationKind
from coordinator.commands.commands import (
    AllocateProducerIds,
    Done,
    EndSession,
    ForgetSessions,
    Outcome,
    ProducerIdsAllocated,
    Proposal,
    RaiseRules,
    Rejected,
    ReportTime,
    StartDrain,
)
from coordinator.commands.rules import RULES_AGENTS, RULES_NEWEST
from coordinator.configs.rules_hold import RULES_HOLD
from coordinator.ledger.port import LedgerCorrupt, LedgerRecord
from coordinator.snapshot import digest
from coordinator.state.state import EVERY_BROKER
from protocol.errors import ErrorCode
from protocol.types import Position, SessionId, TopicId
from tests.support.commands.commands import Cluster, create, start


def rejection(outcome: Outcome) -> ErrorCode:
    assert isinstance(outcome, Rejected)
    assert outcome.reason
    return outcome.error_code


def hold(since_ms: str) -> AlterConfigs:
    """Hold the rules version."""
    return AlterConfigs(
        resource_type=ConfigResourceType.BROKER,
        resource_name=EVERY_BROKER,
        is_whole=False,
        operations=(ConfigOperation(kind=OperationKind.SET, name=RULES_HOLD, value=since_ms),),
    )


class TestEntries:
    def test_a_session_that_did_not_start_is_refused(self) -> None:
        cluster = Cluster()
        assert rejection(cluster.do(create())) is ErrorCode.not_leader_or_follower
        assert rejection(cluster.put(start(), session=1, number=1)) is ErrorCode.not_leader_or_follower
        assert not cluster.state.sessions

    def test_a_repeat_is_ignored(self) -> None:
        cluster = Cluster.started()
        record = cluster.records[-1]
        position = cluster.state.position
        proposal, outcome = apply(cluster.state, record)
        assert proposal is None
        assert rejection(outcome) is ErrorCode.request_timed_out
        assert (cluster.state.position, cluster.state.appends_count) == (position, 2)

    def test_a_repeat_at_a_later_position_only_moves_the_position(self) -> None:
        cluster = Cluster.started()
        cluster.put(AllocateProducerIds(count=5), session=1, number=1)
        assert cluster.state.producer_id_next == 0
        assert (cluster.state.position, cluster.state.appends_count) == (3, 3)

    def test_an_entry_after_a_gap_is_refused_until_the_gap_is_filled(self) -> None:
        cluster = Cluster.started()
        assert rejection(cluster.put(ReportTime(), session=1, number=3)) is ErrorCode.not_leader_or_follower
        assert cluster.put(ReportTime(), session=1, number=2) == Done()
        assert cluster.put(ReportTime(), session=1, number=3) == Done()

    def test_a_refused_command_counts_as_an_entry_and_changes_nothing_else(self) -> None:
        cluster = Cluster.started()
        rejection(cluster.do(create()))
        assert cluster.state.sessions[SessionId(1)].entry_next == 3
        assert len(cluster.state.topics) == 1

    def test_entries_of_one_append_share_its_position(self) -> None:
        cluster = Cluster.started()
        record = cluster.records[0]
        again = LedgerRecord(position=Position(2), session=SessionId(9), number=0, payload=record.payload)
        apply(cluster.state, again)
        assert cluster.state.appends_count == 2

    def test_an_unreadable_entry_stops_the_agent_and_leaves_the_state(self) -> None:
        cluster = Cluster.started()
        before = digest(cluster.state)
        with pytest.raises(LedgerCorrupt):
            apply(
                cluster.state, LedgerRecord(position=Position(9), session=SessionId(1), number=2, payload=b"\x07\x00")
            )
        assert digest(cluster.state) == before


class TestS2Time:
    def test_time_never_goes_back(self) -> None:
        cluster = Cluster.started()
        for proposed, held in [(100, 100), (50, 100), (None, 100), (101, 101)]:
            cluster.do(ReportTime(), time_ms=proposed)
            assert cluster.state.time_ms == held

    def test_the_first_entry_of_a_session_has_a_time_too(self) -> None:
        cluster = Cluster()
        cluster.do(start(), time_ms=7)
        assert cluster.state.time_ms == 7

    def test_an_entry_that_is_not_carried_out_for_lack_of_a_session_moves_no_time(self) -> None:
        cluster = Cluster()
        cluster.do(start())
        cluster.do(start("b", node=1), session=2, time_ms=7)
        cluster.do(ReportTime(), session=3, time_ms=9)
        assert cluster.state.time_ms == 0


class TestS12Sessions:
    def test_a_session_starts_once(self) -> None:
        cluster = Cluster.started()
        assert rejection(cluster.do(start())) is ErrorCode.invalid_request

    def test_a_new_session_ends_its_predecessor_of_the_same_name(self) -> None:
        cluster = Cluster.started()
        cluster.do(ReportTime(), time_ms=50)
        assert cluster.do(start(), session=2) == Done()
        assert list(cluster.state.sessions) == [2]
        assert cluster.state.sessions_ended == {1: 50}

    def test_s6_a_predecessor_ends_at_the_time_of_the_entry_that_ends_it(self) -> None:
        cluster = Cluster.started()
        cluster.do(ReportTime(), time_ms=50)
        cluster.do(start(), session=2, time_ms=90)
        assert cluster.state.sessions_ended == {1: 90}

    def test_a_start_that_is_refused_moves_no_time(self) -> None:
        cluster = Cluster.started()
        cluster.do(ReportTime(), time_ms=50)
        assert (
            rejection(cluster.do(start("b", node=1), session=2, time_ms=90)) is ErrorCode.duplicate_broker_registration
        )
        assert cluster.state.time_ms == 50

    def test_what_an_ended_session_left_in_flight_is_refused(self) -> None:
        cluster = Cluster.started()
        cluster.do(start(), session=2)
        assert rejection(cluster.do(create("u"))) is ErrorCode.not_leader_or_follower
        assert rejection(cluster.put(start(), session=1, number=0)) is ErrorCode.not_leader_or_follower

    def test_two_agents_of_one_node_id_are_refused(self) -> None:
        cluster = Cluster.started()
        assert rejection(cluster.do(start("b", node=1), session=2)) is ErrorCode.duplicate_broker_registration
        assert cluster.do(start("b", node=2), session=3) == Done()

    def test_any_agent_may_report_that_a_session_ended(self) -> None:
        cluster = Cluster.started()
        cluster.do(start("b", node=2), session=2)
        assert cluster.do(EndSession(session=SessionId(1)), session=2, time_ms=9) == Done()
        assert cluster.state.sessions_ended == {1: 9}
        assert rejection(cluster.do(EndSession(session=SessionId(1)), session=2)) is ErrorCode.broker_id_not_registered

    def test_ended_sessions_are_remembered_until_they_are_forgotten(self) -> None:
        cluster = Cluster.started()
        cluster.do(start(), session=2)
        assert cluster.do(ForgetSessions(sessions=(SessionId(1), SessionId(2), SessionId(3))), session=2) == Done()
        assert (list(cluster.state.sessions), cluster.state.sessions_ended) == ([2], {})


class TestDrains:
    def test_a_session_that_drains_goes_on_until_it_ends(self) -> None:
        cluster = Cluster.started()
        assert cluster.do(StartDrain(session=SessionId(1))) == Done()
        assert cluster.state.sessions[SessionId(1)].is_draining
        assert cluster.do(StartDrain(session=SessionId(1))) == Done()
        assert cluster.do(ReportTime(), time_ms=5) == Done()
        assert cluster.do(EndSession(session=SessionId(1))) == Done()

    def test_a_session_that_is_not_live_cannot_drain(self) -> None:
        assert rejection(Cluster.started().do(StartDrain(session=SessionId(2)))) is ErrorCode.broker_id_not_registered

    def test_the_next_session_of_the_name_does_not_drain(self) -> None:
        cluster = Cluster.started()
        cluster.do(StartDrain(session=SessionId(1)))
        cluster.do(start(), session=2)
        assert not cluster.state.sessions[SessionId(2)].is_draining


class TestS3Rules:
    def test_newer_rules_wait_for_every_live_session(self) -> None:
        cluster = Cluster()
        cluster.do(start(rules=2))
        cluster.do(start("b", node=2, rules=1), session=2)
        assert rejection(cluster.do(RaiseRules(rules_version=2))) is ErrorCode.invalid_update_version
        cluster.do(EndSession(session=SessionId(2)))
        assert cluster.do(RaiseRules(rules_version=2)) == Done()
        assert cluster.state.rules_version == 2

    def test_the_next_rules_come_into_force_over_the_second(self) -> None:
        cluster = Cluster()
        cluster.do(start(rules=3))
        for version in (2, 3):
            assert cluster.do(RaiseRules(rules_version=version)) == Done()
            assert cluster.state.rules_version == version

    def test_rules_are_never_lowered(self) -> None:
        cluster = Cluster.started()
        assert rejection(cluster.do(RaiseRules(rules_version=1))) is ErrorCode.invalid_update_version

    def test_s3_a_hold_keeps_newer_rules_back_until_it_ends(self) -> None:
        newer = RULES_AGENTS + 1
        cluster = Cluster.started(RULES_AGENTS)
        cluster.do(start("a", rules=newer), session=2)
        cluster.do(hold("5"), session=2)
        assert rejection(cluster.do(RaiseRules(rules_version=newer), session=2)) is ErrorCode.invalid_update_version
        cluster.do(hold("-1"), session=2)
        assert cluster.do(RaiseRules(rules_version=newer), session=2) == Done()

    def test_s3_rules_that_know_no_hold_are_raised_all_the_same(self) -> None:
        """Agents of these rules take a raise for one: whoever keeps a hold does not propose it."""
        cluster = Cluster()
        cluster.do(start(rules=RULES_AGENTS))
        cluster.do(hold("5"))
        assert cluster.do(RaiseRules(rules_version=RULES_AGENTS)) == Done()

    def test_an_agent_that_lacks_the_rules_in_force_cannot_start(self) -> None:
        cluster = Cluster()
        cluster.do(start(rules=2))
        cluster.do(RaiseRules(rules_version=2))
        assert rejection(cluster.do(start("b", node=2, rules=1), session=2)) is ErrorCode.unsupported_version


class TestProducerIds:
    def test_blocks_follow_each_other(self) -> None:
        cluster = Cluster.started()
        assert cluster.do(AllocateProducerIds(count=10)) == ProducerIdsAllocated(
            producer_id_first=type(cluster.state.producer_id_next)(0), count=10
        )
        outcome = cluster.do(AllocateProducerIds(count=1))
        assert isinstance(outcome, ProducerIdsAllocated)
        assert outcome.producer_id_first == 10

    @pytest.mark.parametrize("count", [-1, 0, 1_000_001])
    def test_a_block_has_a_size(self, count: int) -> None:
        assert rejection(Cluster.started().do(AllocateProducerIds(count=count))) is ErrorCode.invalid_request


def test_s3_an_entry_in_a_newer_form_than_the_rules_in_force_takes_no_effect() -> None:
    """Agents that do not know the form stop at it: an agent that took it in would go on alone."""
    cluster = Cluster.started()
    before = cluster.state.topics.copy()
    proposal = Proposal(time_ms=None, command=create("u", topic_id=TopicId(bytes([9] * 16))), form=RULES_NEWEST)
    assert cluster.state.rules_version < RULES_NEWEST
    _, outcome = apply_proposal(cluster.state, SessionId(1), 2, proposal)
    assert rejection(outcome) is ErrorCode.unsupported_version
    assert cluster.state.topics == before
    cluster.state.rules_version = RULES_NEWEST
    _, outcome = apply_proposal(cluster.state, SessionId(1), 3, proposal)
    assert outcome == Done()
