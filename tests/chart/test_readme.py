"""The README of the chart is made of the comments in its values, and every value has one."""

import pytest

from tools.pages.chart_readme import README, comments_by_name, readme, value_rows


def test_the_readme_says_what_the_values_say() -> None:
    assert README.read_text(encoding="utf-8") == readme(), "deploy/chart/README.md is out of date: run make reference"


def test_a_comment_belongs_to_the_name_below_it() -> None:
    text = "# First line\n# and second.\na:\n  # Inner.\n  b: 1\n  c: 2\n# Lost.\n\nd: 3\n"
    assert comments_by_name(text) == {("a",): "First line and second.", ("a", "b"): "Inner."}


def test_a_value_without_a_comment_is_an_error() -> None:
    assert list(value_rows("# One.\na: 1\nb:\n  # Two.\n  c: []\n")) == [("a", "`1`", "One."), ("b.c", "`[]`", "Two.")]
    with pytest.raises(LookupError, match=r"b\.d has no comment"):
        list(value_rows("b:\n  # Two.\n  c: 2\n  d: 3\n"))
