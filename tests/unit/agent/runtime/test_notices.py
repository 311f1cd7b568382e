"""The lines of `/ready`: what strangers may read."""

from pathlib import Path

import pytest

from agent.runtime.notices import NoticeKind

MONITORING = Path(__file__).resolve().parents[4] / "docs" / "operations" / "monitoring.md"


@pytest.mark.parametrize("kind", NoticeKind)
def test_a_line_is_plain_words_that_the_page_of_operations_explains(kind: NoticeKind) -> None:
    assert kind.value.replace(" ", "").replace(",", "").isalpha(), "no path, address, name or count"
    assert f"`{kind.value}`" in MONITORING.read_text(encoding="utf-8")
