"""Who is responsible for what: every agent says the same, and as little as possible moves."""

from collections import Counter
from collections.abc import Mapping

import pytest

from coordinator.state import rendezvous
from coordinator.state.rendezvous import Assignment, Placement, owner_of, owners_of, transaction_key
from coordinator.state.state import SessionState
from protocol.types import SessionId, TopicId

TOPIC = TopicId(bytes(range(16)))
OTHER = TopicId(bytes(16))


def sessions(*agents: str, draining: str = "") -> dict[SessionId, SessionState]:
    """Each agent is NAME or NAME@ZONE; its node id is its number in the list, from 1."""
    found: dict[SessionId, SessionState] = {}
    for number, agent in enumerate(agents, 1):
        name, _, zone = agent.partition("@")
        found[SessionId(number * 10)] = SessionState(
            name=name,
            node_id=number,
            endpoints=(),
            zone=zone or None,
            rules_version=1,
            entry_next=1,
            is_draining=name == draining,
        )
    return found


def leaders(among: Mapping[SessionId, SessionState], *, count: int = 1_000, zone: str | None = None) -> list[int]:
    return [assignment.leader for assignment in Placement(among).assignments(TOPIC, count, zone)]


class TestOwners:
    def test_an_owner_is_the_same_in_every_process_indefinitely(self) -> None:
        """A change of these would let two versions of the program disagree."""
        owners = [owner_of(f"key-{n}".encode(), sessions("a", "b", "c")) for n in range(8)]
        assert owners == [30, 20, 20, 20, 30, 30, 30, 20]

    def test_a_transactional_id_has_the_same_coordinator_in_every_process(self) -> None:
        """Agents of two versions of the program name the same coordinator only while these bytes stay as they are."""
        assert transaction_key("payments-\N{LATIN SMALL LETTER E WITH ACUTE}") == b"transaction payments-\xc3\xa9"

    def test_the_order_of_sessions_does_not_matter(self) -> None:
        live = sessions("a", "b", "c")
        turned = dict(reversed(live.items()))
        assert [owner_of(bytes([n]), live) for n in range(99)] == [owner_of(bytes([n]), turned) for n in range(99)]

    def test_many_keys_together_have_the_owners_that_each_has_alone(self) -> None:
        keys = [f"key-{n}".encode() for n in range(99)]
        live = sessions("a", "b", "c", draining="b")
        assert list(owners_of(keys, live)) == [owner_of(key, live) for key in keys]
        assert list(owners_of(keys, {})) == [None] * len(keys)
        assert [list(owners_of((), among)) for among in (live, {})] == [[], []]

    def test_nobody_owns_anything_where_nobody_lives(self) -> None:
        assert owner_of(b"key", {}) is None

    def test_who_drains_owns_nothing_unless_all_do(self) -> None:
        keys = [bytes([n]) for n in range(99)]
        assert {owner_of(key, sessions("a", "b", draining="a")) for key in keys} == {20}
        assert {owner_of(key, sessions("a", draining="a")) for key in keys} == {10}


class TestPlacement:
    def test_leaders_are_the_same_in_every_process_indefinitely(self) -> None:
        assert leaders(sessions("a", "b", "c"), count=12) == [2, 2, 1, 2, 3, 2, 3, 1, 1, 3, 2, 3]

    def test_partitions_are_spread(self) -> None:
        shares = Counter(leaders(sessions(*"abcde"), count=10_000))
        assert all(1_800 < share < 2_200 for share in shares.values()), shares

    def test_topics_of_one_partition_are_spread_too(self) -> None:
        placement = Placement(sessions(*"abcd"))
        topics = [TopicId(n.to_bytes(16, "big")) for n in range(4_000)]
        shares = Counter(placement.assignments(topic, 1, None)[0].leader for topic in topics)
        assert all(850 < share < 1_150 for share in shares.values()), shares

    @pytest.mark.parametrize("after", [sessions("a", "b"), sessions("a", "b", "c", draining="c")])
    def test_when_an_agent_leaves_only_its_partitions_move(self, after: dict[SessionId, SessionState]) -> None:
        moved = [
            (before, now)
            for before, now in zip(leaders(sessions("a", "b", "c")), leaders(after), strict=True)
            if before != now
        ]
        assert {before for before, _ in moved} == {3}
        assert {now for _, now in moved} == {1, 2}

    def test_when_an_agent_comes_partitions_move_to_it_alone(self) -> None:
        pairs = zip(leaders(sessions("a", "b")), leaders(sessions("a", "b", "c")), strict=True)
        assert {now for before, now in pairs if before != now} == {3}

    def test_a_restarted_agent_gets_back_what_it_had(self) -> None:
        again = sessions("a", "b", "c")
        again[SessionId(99)] = again.pop(SessionId(10))
        assert leaders(again) == leaders(sessions("a", "b", "c"))

    def test_a_client_is_led_within_its_zone(self) -> None:
        live = sessions("a@x", "b@x", "c@y", "d")
        assert set(leaders(live, zone="x")) == {1, 2}
        assert set(leaders(live, zone="y")) == {3}
        assert set(leaders(live)) == {1, 2, 3, 4}

    def test_a_zone_without_an_agent_is_anywhere(self) -> None:
        live = sessions("a@x", "b@y", draining="b")
        assert leaders(live, zone="z") == leaders(live)
        assert set(leaders(live, zone="y")) == {1}

    def test_replicas_are_the_leader_and_an_agent_of_each_zone(self) -> None:
        placement = Placement(sessions("a@x", "b@x", "c@y", "d"))
        for zone in (None, "x", "y"):
            for partition, (leader, replicas, _) in enumerate(placement.assignments(TOPIC, 200, zone)):
                near = {placement.assignments(TOPIC, 200, name)[partition].leader for name in ("x", "y")}
                assert replicas[0] == leader
                assert set(replicas) == {leader, *near}
                assert len(set(replicas)) == len(replicas)

    def test_without_zones_the_leader_is_the_only_replica(self) -> None:
        assert all(
            found == Assignment(found.leader, (found.leader,))
            for found in Placement(sessions("a", "b")).assignments(TOPIC, 50, None)
        )

    def test_a_zone_without_an_agent_has_no_replica(self) -> None:
        placement = Placement(sessions("a@x"))
        assert placement.zones == ("x",)
        assert (placement.is_in("x", 1), placement.is_in("y", 1), placement.is_in("x", 2)) == (True, False, False)

    def test_replicas_by_hand_are_led_by_the_first_that_lives(self) -> None:
        placement = Placement(sessions("a", "b", "c", draining="c"))
        otherwise = Assignment(1, (1,))
        assert placement.by_hand((2, 1), None, otherwise) == Assignment(2, (2, 1))
        assert placement.by_hand((3, 9, 2), None, otherwise) == Assignment(2, (3, 9, 2), offline=(3, 9))
        assert placement.by_hand((3, 9, 2), None, otherwise).in_sync == (2,)
        assert placement.by_hand((2, 1), None, otherwise).in_sync == (2, 1)

    def test_of_replicas_by_hand_those_of_the_clients_zone_come_first(self) -> None:
        placement = Placement(sessions("a@x", "b@y", "c@y"))
        leaders_by_zone = {
            zone: placement.by_hand((1, 3, 2), zone, Assignment(2, (2,))).leader for zone in (None, "x", "y", "z")
        }
        assert leaders_by_zone == {None: 1, "x": 1, "y": 3, "z": 1}

    def test_where_no_replica_by_hand_lives_whoever_would_lead_does(self) -> None:
        found = Placement(sessions("a", "b")).by_hand((9, 8), None, Assignment(2, (2,)))
        assert found == Assignment(2, (9, 8), offline=(9, 8))
        assert found.in_sync == ()

    def test_nobody_leads_where_nobody_lives(self) -> None:
        assert Placement({}).assignments(TOPIC, 3, None) == ()

    def test_a_topic_that_grows_keeps_its_leaders(self) -> None:
        placement = Placement(sessions("a", "b", "c"))
        few = list(placement.assignments(TOPIC, 5, None))
        assert placement.assignments(TOPIC, 9, None)[:5] == few
        assert placement.assignments(TOPIC, 5, None) == few

    def test_equal_assignments_are_one_object(self) -> None:
        found = Placement(sessions("a", "b")).assignments(TOPIC, 100, None)
        assert len({id(assignment) for assignment in found}) == 2

    def test_what_is_remembered_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rendezvous, "PLACEMENTS_CACHED_MAX", 1)
        placement = Placement(sessions("a"))
        first = placement.assignments(TOPIC, 1, None)
        placement.assignments(OTHER, 1, None)
        assert placement.assignments(TOPIC, 1, None) == first == [Assignment(1, (1,))]
