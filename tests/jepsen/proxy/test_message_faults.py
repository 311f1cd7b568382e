"""What chance does to messages: of every kind something, and no copy of what V1 cannot tell apart."""

import random

from tests.jepsen.proxy.frames import Api
from tests.jepsen.proxy.message_faults import message_fault
from tests.jepsen.proxy.rules import Act, Rule, Side


def drawn(seed: int = 1) -> list[Rule]:
    chance = random.Random(seed)
    return [message_fault(chance) for _ in range(1_000)]


def test_every_api_is_held_and_dropped_both_as_request_and_as_answer() -> None:
    found = {(rule.act, rule.side, rule.api_key) for rule in drawn() if rule.act is not Act.DUPLICATE}
    assert found == {(act, side, api) for act in (Act.HOLD, Act.DROP) for side in Side for api in Api}


def test_only_what_v2_can_tell_apart_comes_twice() -> None:
    copies = [rule for rule in drawn() if rule.act is Act.DUPLICATE]
    assert {rule.api_key for rule in copies} == {Api.PRODUCE, Api.END_TXN, Api.TXN_OFFSET_COMMIT}
    assert all(rule.side is Side.REQUEST and rule.versions is not None for rule in copies)
    assert all(4 not in (rule.versions or ()) for rule in copies if rule.api_key != Api.PRODUCE)


def test_nothing_is_held_indefinitely() -> None:
    assert all(rule.seconds is not None and rule.seconds <= 6 for rule in drawn())
