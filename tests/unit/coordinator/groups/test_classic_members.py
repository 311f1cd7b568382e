"""The members of a classic group: who leads, what they vote for, and when they count as gone."""

import pytest

from coordinator.groups.classic_members import LiveMember, Members, member_of, size_of
from coordinator.groups.classic_messages import Join, Protocols, Ticket
from protocol.errors import ErrorCode
from protocol.limits import CLASSIC_PROTOCOL_BYTES


def join(ticket: int = 0, *, instance: str | None = None, protocols: Protocols = (("range", b"topics"),)) -> Join:
    return Join(
        ticket=Ticket(ticket),
        member_id="",
        member_id_new="",
        group_instance_id=instance,
        client_id="client",
        client_host="/127.0.0.1",
        protocol_type="consumer",
        protocols=protocols,
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        needs_known_id=False,
        may_skip_assignment=False,
    )


def members(*joins: tuple[str, Join]) -> Members:
    found = Members((), None, 0.0)
    for member_id, each in joins:
        found.add(member_of(each, member_id, 300.0))
    return found


def test_the_first_member_leads_and_the_next_one_after_it() -> None:
    found = members(("b", join()), ("a", join()))
    assert found.leader == "b"
    found.remove("b")
    assert found.leader == "a"
    found.remove("a")
    assert found.leader is None


def test_whoever_is_not_there_cannot_be_removed() -> None:
    assert members(("a", join())).remove("b") is None


def test_a_member_is_let_in_once() -> None:
    found = members(("a", join(instance="i")))
    with pytest.raises(AssertionError, match="a is a member already"):
        found.add(member_of(join(), "a", 0.0))
    with pytest.raises(AssertionError, match="i is a member already"):
        found.add(member_of(join(instance="i"), "b", 0.0))


def test_a_static_member_is_known_by_its_instance() -> None:
    found = members(("a", join(instance="i")))
    assert found.check("a", "i") is ErrorCode.none
    assert found.check("a", None) is ErrorCode.none
    assert found.check("b", "i") is ErrorCode.fenced_instance_id
    assert found.check("a", "j") is ErrorCode.unknown_member_id
    assert found.check("b", None) is ErrorCode.unknown_member_id


def test_a_successor_has_its_predecessors_place_and_lead_but_waits_for_nothing() -> None:
    found = members(("a", join(1, instance="i")), ("b", join(2)))
    old = found.by_id["a"]
    old.assignment = b"part"
    new = found.replace(old, "a2")
    assert (new.assignment, new.join_ticket, found.leader) == (b"part", None, "a2")
    assert found.static_ids == {"i": "a2"}
    assert found.replace(new, "a3").member_id == found.leader
    follower = members(("b", join()), ("a", join(instance="i")))
    follower.replace(follower.by_id["a"], "a2")
    assert follower.leader == "b"


def test_whoever_has_joined_may_be_elected() -> None:
    assert not members().elect()
    found = members(("a", join(1)), ("b", join(2)))
    assert found.elect()
    assert found.leader == "a"
    found.by_id["a"].join_ticket = None
    assert found.elect()
    assert found.leader == "b"
    found.by_id["b"].join_ticket = None
    assert not found.elect()
    assert found.leader == "b"


def test_votes_go_to_what_all_know() -> None:
    found = members(
        ("a", join(protocols=(("x", b""), ("y", b"")))),
        ("b", join(protocols=(("x", b""), ("y", b"")))),
        ("c", join(protocols=(("z", b""), ("y", b""), ("x", b"")))),
    )
    assert found.vote() == "x"
    assert found.support((("nobody's", b""), ("y", b"")))
    assert not found.support((("z", b""),))
    found.remove("a")
    assert found.vote() == "y", "among equals the newest member decides"


def test_what_members_tell_is_counted_as_they_change() -> None:
    found = members(("a", join(protocols=(("x", b"12"),))), ("b", join(protocols=(("x", b""), ("x", b"1")))))
    assert found.size == 2 * len("client") + 3 * CLASSIC_PROTOCOL_BYTES + len("x12") + len("xx1")
    assert size_of(join(instance="i", protocols=(("x", b"12"),))) == CLASSIC_PROTOCOL_BYTES + len("clientix12")
    found.update(found.by_id["a"], join(protocols=(("x", b""), ("y", b"123"))))
    assert found.size == 2 * len("client") + 4 * CLASSIC_PROTOCOL_BYTES + len("xy123") + len("xx1")
    assert found.support((("x", b""),))
    found.remove("b")
    assert found.support((("y", b""),))
    found.remove("a")
    assert found.size == 0


def test_a_member_counts_as_gone_when_its_session_ends_unless_it_waits() -> None:
    member = member_of(join(1), "a", 300.0)
    expires_s = [member.expires_s]
    member.is_new = False
    expires_s.append(member.expires_s)
    member.join_ticket = None
    member.heard_of(50.0)
    expires_s.append(member.expires_s)
    member.sync_ticket = Ticket(2)
    expires_s.append(member.expires_s)
    assert expires_s == [300.0, None, 60.0, None], "a new member's client may be gone, so its wait has an end"


def test_the_next_deadline_is_that_of_the_first_to_go() -> None:
    found = members(("a", join(1)), ("b", join(2)))
    assert found.deadline_s == 300.0
    found.pending["c"] = 20.0
    assert found.deadline_s == 20.0
    assert members().deadline_s is None


def test_metadata_is_that_of_the_protocol() -> None:
    member: LiveMember = member_of(join(protocols=(("x", b"1"), ("y", b"2"))), "a", 0.0)
    assert [member.metadata(name) for name in ("x", "y", "z", None)] == [b"1", b"2", b"", b""]


def test_what_the_ledger_keeps_is_in_the_order_of_ids_and_comes_back() -> None:
    found = members(("b", join(1, instance="i")), ("a", join(2)))
    values = found.values()
    assert [value.member_id for value in values] == ["a", "b"]
    again = Members(values, "b", 100.0)
    assert again.values() == values
    assert again.leader == "b"
    assert again.static_ids == {"i": "b"}
    assert again.deadline_s == 110.0


def test_who_may_be_heard_by_the_coordinator_before_has_time_to_join_again() -> None:
    kept = Members([each.value() for each in members(("a", join())).by_id.values()], "a", 10.0)
    assert kept.rebalance_ends_s(1.0) == 70.0
    assert kept.rebalance_ends_s(11.0) == 71.0
    assert members().rebalance_ends_s(11.0) == 11.0


def test_who_may_be_heard_by_the_coordinator_before_is_not_silent_yet() -> None:
    kept = Members([each.value() for each in members(("a", join())).by_id.values()], "a", 10.0)
    member = kept.by_id["a"]
    member.still_heard_of(1.0)
    assert member.expires_s == 20.0
    member.heard_of(1.0)
    assert member.expires_s == 20.0
    member.heard_of(11.0)
    assert member.expires_s == 21.0
