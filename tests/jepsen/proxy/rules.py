"""What a proxy does to single requests and answers, and to which: rules, and what they struck.

Rule: pure. A rule strikes `times_max` times, then it is used up; of several rules the first that matches strikes. Bytes
are never changed: a message comes as it was, late, twice, or not at all.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from tests.jepsen.proxy.frames import ProxiedRequest


class Act(Enum):
    """What is done to a message."""

    HOLD = "hold"
    """It waits until it is released, and with it what comes behind it in that direction of that connection.

    A request comes late on the connection on which it was sent, even where its client has closed that meanwhile.
    """
    DROP = "drop"
    """It is lost with its connection, which the client sees closed."""
    DUPLICATE = "duplicate"
    """A request passes, and comes a second time; nobody is told the second answer."""


class Side(Enum):
    REQUEST = "request"
    ANSWER = "answer"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Rule:
    """Which messages, and what is done. A condition that is None holds always.

    `body`: a predicate on the request, of an answer on the one that it answers.
    `seconds`: after which something held is released by itself. Of a duplicate: `is_held` says that it waits to be
    released, `is_elsewhere` that it takes a connection of its own.
    """

    act: Act
    api_key: int
    side: Side = Side.REQUEST
    versions: range | None = None
    client_id: str | None = None
    transactional_id: str | None = None
    body: Callable[[ProxiedRequest], bool] | None = None
    times_max: int = 1
    seconds: float | None = None
    is_held: bool = False
    is_elsewhere: bool = False

    def matches(self, side: Side, request: ProxiedRequest) -> bool:
        return (
            side is self.side
            and request.api_key == self.api_key
            and (self.versions is None or request.version in self.versions)
            and (self.client_id is None or request.client_id == self.client_id)
            and (self.transactional_id is None or request.transactional_id == self.transactional_id)
            and (self.body is None or self.body(request))
        )


@dataclass(slots=True)
class Rulebook:
    """The rules of a proxy in their order, and how often each may still strike."""

    _left: dict[Rule, int] = field(default_factory=dict[Rule, int])

    def add(self, rule: Rule) -> None:
        assert rule.side is Side.REQUEST or rule.act is not Act.DUPLICATE, "an answer is not duplicated"
        self._left[rule] = rule.times_max

    def remove(self, rule: Rule) -> None:
        self._left.pop(rule, None)

    def strike(self, side: Side, request: ProxiedRequest) -> Rule | None:
        """The rule that strikes this message, counted; None where it passes."""
        for rule, left in self._left.items():
            if left and rule.matches(side, request):
                self._left[rule] = left - 1
                return rule
        return None
