"""The page of a verdict: what it says, by reading it as XML."""

from collections.abc import Iterator
from typing import get_args
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jepsen.checks.anomaly import Kind
from tests.jepsen.checks.checker import Options, check
from tests.jepsen.checks.history_fixtures import Made, read, sent
from tests.jepsen.checks.simulated_log import Fault, SimulatedLog
from tests.jepsen.history.history import History
from tests.jepsen.report.report import DRAWN_MAX, ROWS_MAX, render

SVG = "{http://www.w3.org/2000/svg}"
OTHER = "b-0"


def page(history: History, options: Options | None = None, title: str = "A run") -> Element:
    text = render(history, check(history, options or Options()), title)
    assert text.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def figures(root: Element) -> list[Element]:
    return list(root.iter("figure"))


def texts(element: Element, name: str = f"{SVG}text") -> list[str]:
    return [each.text or "" for each in element.iter(name)]


def classes(element: Element, name: str) -> list[str]:
    return [each.get("class", "") for each in element.iter(f"{SVG}{name}") if each.get("class")]


def references(root: Element) -> Iterator[str]:
    for element in root.iter():
        for name, value in element.items():
            if name in {"src", "href", "data", "action"}:
                yield value


def aborted() -> Made:
    return Made().did(0, sent(6, 4)).did(0, sent(1), kind="fail").did(1, read((4, 6), (5, 1)))


def crossed() -> Made:
    a, b = (sent(1, 0), read((0, 2), key=OTHER)), (sent(2, 0, key=OTHER), read((0, 1)))
    return Made().begun(0, *a).begun(1, *b).ended(0, *a).ended(1, *b)


def test_a_history_without_anomalies_is_valid() -> None:
    root = page(Made().did(0, sent(1, 5)).did(1, read((5, 1))).history())
    assert root.findtext("head/title") == "A run: valid"
    assert root.findtext(".//span[@class='verdict valid']") == "valid"
    assert figures(root) == []
    assert "2 calls, 1 keys, 1 records; the history has no final read." in texts(root, "p")


def test_a_history_with_an_error_is_not_valid() -> None:
    root = page(aborted().history())
    assert root.findtext("head/title") == "A run: not valid"
    assert root.findtext(".//span[@class='verdict invalid']") == "not valid"
    assert [each.text for each in root.iter("a")] == ["G1a"]
    assert root.find(".//h2[@id='G1a']") is not None


def test_records_concerned_are_drawn_where_they_stand() -> None:
    (figure,) = figures(page(aborted().history()))
    assert figure.findtext("figcaption") == "T5 (ok, process 1) read value 1 of a-0, sent by T3 (fail, process 0)"
    assert classes(figure, "rect") == ["cell", "cell concerned"]
    drawn = texts(figure)
    assert [text for text in drawn if text.startswith("@")] == ["@4", "@5"]
    assert {"T3 send fail, process 0", "T5 poll ok, process 1", "sent", "read 1", "read 2"} <= set(drawn)


def test_far_apart_records_are_drawn_with_a_gap() -> None:
    made = Made()
    for value in range(30):
        made.did(0, sent(value, value))
    made.did(1, *(read((value, value)) for value in [*range(10), *range(25, 30)]))
    made.did(2, *(read((value, value)) for value in range(10, 25)))
    (figure,) = figures(page(made.history()))
    drawn = texts(figure)
    assert "…" not in drawn[:2]
    assert drawn.count("…") == 1
    assert [text for text in drawn if text.startswith("@")] == [f"@{at}" for at in [*range(6, 13), *range(22, 29)]]


def test_a_value_that_is_nowhere_in_the_log_is_drawn_behind_it() -> None:
    (figure,) = figures(page(Made().did(0, sent(7)).history()))
    assert {"nowhere", "7", "sent"} <= set(texts(figure))


def test_two_values_at_one_offset_are_drawn_in_one_place() -> None:
    made = Made().did(0, sent(1), sent(2)).did(1, read((5, 1))).did(2, read((5, 2)))
    (figure,) = figures(page(made.history()))
    assert "1 | 2" in texts(figure)


def test_a_cycle_is_drawn_with_its_calls_and_reasons() -> None:
    (figure,) = figures(page(crossed().history(), Options(ww_deps=False)))
    assert classes(figure, "rect") == ["call ok", "call ok"]
    assert classes(figure, "path") == ["edge wr", "edge wr"]
    drawn = texts(figure)
    assert "T2 txn ok: process 0, made, begun at line 0" in drawn
    assert "send a-0 1 @0, poll {b-0: 2}" in drawn
    assert any(text.startswith("wr: T3 (ok, process 1) sent value 2 to b-0") for text in drawn)


def test_the_calls_are_reported_in_full() -> None:
    made = Made().did(0, *(sent(value, value) for value in range(50)), kind="fail").did(1, read((0, 0)))
    root = page(made.history())
    told = figures(root)[0].findtext("details/pre") or ""
    assert "send a-0 49 @49" in told
    assert all(len(text) <= 120 for text in texts(figures(root)[0]))


def test_long_polls_are_cut_short() -> None:
    made = Made().did(0, *(sent(value) for value in range(1, 10)), kind="fail")
    made.did(1, read(*((value, value) for value in range(1, 10))))
    assert "poll {a-0: 1 2 3 4 5 6 … 9}" in (figures(page(made.history()))[0].findtext("details/pre") or "")


def test_of_many_anomalies_some_are_drawn_and_the_others_counted() -> None:
    made = Made()
    for value in range(DRAWN_MAX + 3):
        made.did(0, sent(value, value))
    root = page(made.history())
    assert len(figures(root)) == DRAWN_MAX
    assert "3 more are not drawn." in texts(root, "p")


def test_what_is_allowed_is_reported_as_such() -> None:
    root = page(SimulatedLog(7).run(400))
    assert {each.text for each in root.iter("span")} == {"valid", "allowed"}


def test_what_was_measured_stands_in_tables() -> None:
    made = Made().assigned(1, "a", f="subscribe").did(0, sent(1, 0)).did(1, read((0, 1))).did(1, read((0, 1)))
    made.begun(0, sent(2)).ended(0, sent(2), kind="info", error="timed <out>").did(0, sent(3, 2)).did(1, read())
    cells = [[cell.text for cell in row.iter("td")] for row in page(made.history()).iter("tr")]
    assert ["made", "send", "2", "0", "1"] in cells
    assert ["1", "timed <out>"] in cells
    assert ["1.000", "a-0", "1"] in cells
    assert ["2", "a-0", "1", "1"] in cells


def test_long_tables_are_cut_short() -> None:
    made = Made()
    for number in range(ROWS_MAX + 4):
        made.begun(number, sent(number)).ended(number, sent(number), kind="info", error=f"cause {number}")
    assert "4 more." in texts(page(made.history()), "p")


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_has_its_drawing(fault: Fault) -> None:
    for seed in range(20):
        log = SimulatedLog(seed, fault=fault)
        history = log.run(200)
        if log.is_fault_done:
            root = page(history)
            assert figures(root)
            assert set(references(root)) <= {f"#{kind}" for kind in get_args(Kind)}
            return
    pytest.fail(f"{fault} has no occasion")


@given(st.text())
def test_texts_of_clients_are_escaped(text: str) -> None:
    made = Made().begun(0, sent(1)).ended(0, sent(1), kind="info", error=text)
    root = page(made.history(), title=f"Run {text}")
    assert root.find("body/script") is None
    cells = [cell.text for cell in root.iter("td")]
    printable = "".join(character if character.isprintable() or character == "\n" else "?" for character in text)
    assert (printable or "never ended") in cells
