"""A broker config holds the rules version."""

import pytest

from coordinator.configs.broker_config_checks import validate_dynamic
from coordinator.configs.config_types import InvalidConfigRequest
from coordinator.configs.rules_hold import NOT_HELD, RULES_HOLD, rules_hold_since_ms
from protocol.limits import RULES_HOLD_MS_MAX


@pytest.mark.parametrize(
    ("text", "since_ms"),
    [("0", 0), ("1700000000000", 1_700_000_000_000), ("+5", 5), (" 7 ", 7), ("-0", 0), (str(RULES_HOLD_MS_MAX),) * 2],
)
def test_a_time_holds(text: str, since_ms: int | str) -> None:
    validate_dynamic({RULES_HOLD: text}, is_every_broker=True)
    assert rules_hold_since_ms({RULES_HOLD: text}) == int(since_ms)


@pytest.mark.parametrize("configs", [{}, {RULES_HOLD: NOT_HELD}, {RULES_HOLD: ""}, {RULES_HOLD: "x"}, {"other": "5"}])
def test_anything_else_does_not(configs: dict[str, str]) -> None:
    assert rules_hold_since_ms(configs) is None


@pytest.mark.parametrize("text", ["-2", "", "yes", "9" * 16])
def test_what_is_no_time_cannot_be_set(text: str) -> None:
    with pytest.raises(InvalidConfigRequest, match=RULES_HOLD):
        validate_dynamic({RULES_HOLD: text}, is_every_broker=True)


def test_no_broker_holds_alone() -> None:
    with pytest.raises(InvalidConfigRequest, match="for one broker"):
        validate_dynamic({RULES_HOLD: "5"}, is_every_broker=False)
