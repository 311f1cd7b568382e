"""Regular expressions of subscriptions (KIP-848), by RE2 as pyarrow carries it.

Rule: Kafka uses RE2/J. RE2 has the same syntax, and like RE2/J it matches in linear time, whatever the expression: no
client can slow an agent down. An expression has to match a whole name. Importing pyarrow takes a fifth of a second, and
many topics some milliseconds, so callers use a thread.
Differs from Kafka: an expression that ends within `\\Q` is rejected, as are the few escapes that only RE2/J knows.
Source: org.apache.kafka.coordinator.group.modern.consumer.TopicRegexResolver, Kafka 4.3.
"""
# Without stubs, pyright does not see functions that are made at import.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING

from protocol.limits import CONSUMER_GROUP_REGEX_CHARS_MAX, CONSUMER_GROUP_REGEXES_MAX

if TYPE_CHECKING:
    import pyarrow


@lru_cache(maxsize=CONSUMER_GROUP_REGEXES_MAX)
def regex_problem(regex: str) -> str | None:
    """RE2's error message for an expression; None for a valid one."""
    import pyarrow

    if len(regex) > CONSUMER_GROUP_REGEX_CHARS_MAX:
        return f"it has {len(regex)} characters, more than the maximum of {CONSUMER_GROUP_REGEX_CHARS_MAX}"
    try:
        for pattern in (regex, _whole(regex)):
            _matches(_column([""]), pattern)
    except pyarrow.ArrowInvalid as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return None


def matcher(names: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """A function that returns the names that an expression matches, ascending. The expression has to be valid."""
    ordered = sorted(names)
    column = _column(ordered)

    def match(regex: str) -> tuple[str, ...]:
        return tuple(compress(ordered, _matches(column, _whole(regex))))

    return match


def _whole(regex: str) -> str:
    return rf"\A(?:{regex})\z"


def _column(names: Sequence[str]) -> "pyarrow.StringArray":
    import pyarrow

    return pyarrow.array(names, pyarrow.string())


def _matches(column: "pyarrow.StringArray", pattern: str) -> list[bool]:
    import pyarrow.compute as compute

    matches: list[bool] = compute.match_substring_regex(column, pattern).to_pylist()
    return matches
