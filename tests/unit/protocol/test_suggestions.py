"""What mistyped names may have meant."""

import pytest

from protocol.limits import NEAR_WORD_CHARS_MAX
from protocol.suggestions import nearest

KNOWN = ("retention.ms", "retention.bytes", "penstock.table.columns", "maxOffsetsPerTrigger")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("retention.mz", "; did you mean retention.ms?"),
        ("penstock.columns", "; did you mean penstock.table.columns?"),
        ("maxoffsetpertrigger", "; did you mean maxOffsetsPerTrigger?"),
        ("zzzz", ""),
        ("", ""),
        ("retention.ms" + " " * NEAR_WORD_CHARS_MAX, ""),
    ],
)
def test_the_known_word_that_is_most_like_it_is_named(word: str, meant: str) -> None:
    assert nearest(word, KNOWN) == meant
