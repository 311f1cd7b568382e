"""What a mistyped name may have meant, for the end of an error's message.

Rule: pure, and bounded whatever was typed: names of others' come here too.
"""

import difflib
from collections.abc import Iterable

from protocol.limits import NEAR_WORD_CHARS_MAX

SIMILARITY_MIN = 0.5
"""Of `difflib.SequenceMatcher.ratio`: what shares less of its letters with every known word is no slip of a finger."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing where no known word is like it. Upper and lower case are the same."""
    if len(word) > NEAR_WORD_CHARS_MAX:
        return ""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=SIMILARITY_MIN)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""
