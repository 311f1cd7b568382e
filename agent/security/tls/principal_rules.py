"""Rules that make the name of a principal from a certificate's subject (ssl.principal.mapping.rules, KIP-371). Pure.

Rules are separated by commas: `RULE:pattern/replacement/[LU]`, or DEFAULT, which takes the subject as it is. The first
rule whose pattern matches the whole subject decides; where none does, the connection is closed.
Differs from Kafka: patterns are Python's regular expressions, of which Java's named groups are taken; a replacement
that refers to a missing group of a pattern without groups is rejected at the start, not at each connection. So are sets
of characters with an unescaped `[` or `&&`: in Java that is a set within a set, or an intersection.
Source: org.apache.kafka.common.security.ssl.SslPrincipalMapper (Kafka 4.3), java.util.regex.Matcher.appendReplacement.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PART = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"\s*(?:(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?))?\s*(?:,|$)", re.DOTALL)
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")
_SET = re.compile(r"\[\^?\]?(?:\\.|[^\\\]])*\]", re.DOTALL)
"""A set of characters; `]` in the first place is a character of it, as in Java."""
_NOT_IN_SETS = re.compile(r"(?:\\.|[^\\\[&]|&(?!&))*", re.DOTALL)
_REFERENCE = re.compile(r"\\(.)|\$(?:(\d+)|\{(\w+)\})|([^\\$]+)", re.DOTALL)


class InvalidRules(ValueError):
    """The text is no list of rules. The message shows the rule, and what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    pattern: re.Pattern[str]
    replacement: str
    case: str

    def apply(self, subject: str) -> str | None:
        if self.pattern.fullmatch(subject) is None:
            return None
        # As Java's replaceAll: every match within the subject is replaced, an empty one at its end too.
        name = self.pattern.sub(lambda match: _expand(self.replacement, match), subject)
        match self.case:
            case "L":
                return name.lower()
            case "U":
                return name.upper()
            case _:
                return name


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, rules: Sequence[_Rule | None]) -> None:
        """None stands for DEFAULT."""
        self._rules = rules

    def name_of(self, subject: str) -> str | None:
        """The name of the principal; None where no rule matches."""
        for rule in self._rules:
            name = subject if rule is None else rule.apply(subject)
            if name is not None:
                return name
        return None


def read_rules(text: str) -> PrincipalRules:
    """The rules in a text. Raises `InvalidRules`."""
    rules: list[_Rule | None] = []
    text, position = text.strip(), 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise InvalidRules(f"{text[position:]!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
        if match[1]:
            rules.append(None)
        elif match[2] is not None:
            rules.append(_rule(match[2], match[3], match[4]))
        position = match.end()
    return PrincipalRules(rules)


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    if _has_sets_of_java(pattern):
        raise InvalidRules(
            f"RULE:{pattern}/{replacement}/: [ and && within a set of characters are a set within it, and an "
            "intersection, which are not supported; a backslash before each makes it a character"
        )
    try:
        # ASCII: in Java's expressions \w, \d and \s are, and so is a match that ignores case.
        compiled = re.compile(_NAMED_GROUP.sub("(?P<", pattern), re.ASCII)
    except re.error as error:
        raise InvalidRules(f"RULE:{pattern}/{replacement}/: the pattern is no regular expression: {error}") from error
    position = 0
    while position < len(replacement):
        part = _REFERENCE.match(replacement, position)
        if part is None:
            raise InvalidRules(f"RULE:{pattern}/{replacement}/: {replacement[position:]!r} refers to no group")
        is_missing = (part[2] is not None and int(part[2][0]) > 0 and not compiled.groups) or (
            part[3] is not None and part[3] not in compiled.groupindex
        )
        if is_missing:
            raise InvalidRules(f"RULE:{pattern}/{replacement}/: the pattern has no group for {part[0]}")
        position = part.end()
    return _Rule(pattern=compiled, replacement=replacement, case=case)


def _has_sets_of_java(pattern: str) -> bool:
    """Whether a set of characters means another one in Java. Patterns may be malformed."""
    position = 0
    while position < len(pattern):
        if pattern[position] == "[":
            match = _SET.match(pattern, position)
            if match is None:
                return False  # it has no end: Python rejects it
            if _NOT_IN_SETS.fullmatch(match[0], 1) is None:
                return True
            position = match.end()
        else:
            position += 2 if pattern[position] == "\\" else 1
    return False


def _expand(replacement: str, match: re.Match[str]) -> str:
    return "".join(_expanded(part, match) for part in _REFERENCE.finditer(replacement))


def _expanded(part: re.Match[str], match: re.Match[str]) -> str:
    escaped, number, name, literal = part.groups()
    if escaped is not None:
        return escaped
    if name is not None:
        return match[name] or ""
    if number is None:
        return literal
    # The longest number that is a group's, as in Java; Kafka takes a reference to no group as the text that it is.
    for length in range(len(number), 0, -1):
        if int(number[:length]) <= match.re.groups:
            return (match[int(number[:length])] or "") + number[length:]
    return f"${number}"
