"""Suggestions for a mistyped name, for the end of an error's message.

Rule: pure, and bounded whatever was typed: names of others' come here too.
"""

import difflib
from collections.abc import Iterable

from protocol.limits import NEAR_WORD_CHARS_MAX

SIMILARITY_MIN = 0.5
"""The least `difflib.SequenceMatcher.ratio`: a name below it with every known word is no typing error."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing where no known word is like it. Upper and lower case are the same."""
    if len(word) > NEAR_WORD_CHARS_MAX:
        return ""
    by_lower = {each.lower(): each for each in known}
    matches = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=SIMILARITY_MIN)
    return f"; did you mean {by_lower[matches[0]]}?" if matches else ""
