"""docs/reference says what the code gives, and nothing else."""

import pytest

from tools.pages.http_routes import SECTIONS
from tools.pages.metric_rows import metric_rows
from tools.pages.reference import FOLDER, check_routes, pages


@pytest.mark.parametrize(("name", "text"), pages().items(), ids=pages().keys())
def test_a_page_is_what_the_code_gives(name: str, text: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == text, f"docs/reference/{name} is out of date: run make reference"


def test_the_folder_holds_no_other_page() -> None:
    assert {path.name for path in FOLDER.iterdir()} == pages().keys()


def test_a_route_without_a_text_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    section = dict(SECTIONS["Agent and topics"])
    del section["GET /live"]
    monkeypatch.setattr("tools.pages.reference.SECTIONS", {**SECTIONS, "Agent and topics": section})
    with pytest.raises(LookupError, match="GET /live"):
        check_routes()


def test_names_of_metrics_are_unique() -> None:
    names = [row.name for row in metric_rows()]
    assert len(set(names)) == len(names)
