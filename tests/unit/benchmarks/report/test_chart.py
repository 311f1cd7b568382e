"""Charts from literal values, read as XML."""

from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from benchmarks.report.chart import (
    DARK,
    LIGHT,
    Axis,
    Chart,
    ChartLine,
    ChartSection,
    ChartSeries,
    LinearAxis,
    LogAxis,
    description,
    draw,
)

SVG = "{http://www.w3.org/2000/svg}"
SERIES = (
    ChartSeries(name="Kafka", style="kafka"),
    ChartSeries(name="Penstock", style="penstock"),
    ChartSeries(name="with MinIO", style="store"),
)
LINE = ChartLine(label="1000 B <p16>", values=(2.0, 8.0, None), texts=("2.00", "8.00", "-"), goal=5.0)


def chart(
    *lines: ChartLine, axis: Axis | None = None, series: Sequence[ChartSeries] = SERIES, are_bars: bool = False
) -> Chart:
    return Chart(
        title="Latency",
        source="run & host",
        axis_title="ms",
        axis=axis or LinearAxis(end=10),
        series=series,
        sections=[ChartSection(title="produce", lines=lines)],
        are_bars=are_bars,
    )


def elements(drawn: str, tag: str, style: str = "") -> list[ElementTree.Element]:
    found = ElementTree.fromstring(drawn).iter(f"{SVG}{tag}")
    return [element for element in found if not style or style in element.get("class", "").split()]


def attribute(element: ElementTree.Element, name: str) -> float:
    return float(element.attrib[name])


def test_a_linear_axis_has_round_ticks_up_to_its_end() -> None:
    axis = LinearAxis(end=1.25)
    assert [axis.share(value) for value in (0, 1.25)] == [0, 1]
    assert [label for _, label in axis.ticks()] == ["0", "0.25", "0.5", "0.75", "1", "1.25"]
    assert [label for _, label in LinearAxis(end=31).ticks()] == ["0", "5", "10", "15", "20", "25", "30"]


def test_a_logarithmic_axis_has_the_powers_of_ten_around_its_values() -> None:
    axis = LogAxis.around([0.5, 20.0])
    assert [label for _, label in axis.ticks()] == ["0.1", "1", "10", "100"]
    assert [axis.share(value) for value in (0.1, 100)] == [0, 1]
    assert axis.share(10) - axis.share(1) == pytest.approx(1 / 3)


def test_a_logarithmic_axis_has_a_place_for_zero_if_there_is_one() -> None:
    axis = LogAxis.around([0.0, 3.0])
    assert [label for _, label in axis.ticks()] == ["0", "1", "10"]
    assert 0 == axis.share(0) < axis.share(1) < axis.share(10) == 1


def test_nothing_but_zeros_has_an_axis_too() -> None:
    assert [label for _, label in LogAxis.around([0.0]).ticks()] == ["0", "1", "10"]


def test_marks_and_goal_lie_where_the_axis_says() -> None:
    drawn = draw(chart(LINE))
    # The first mark of each series explains it in the heading.
    _, circle = elements(drawn, "circle", "kafka")
    _, square = elements(drawn, "rect", "penstock")
    _, goal = elements(drawn, "line", "goal")
    ticks = [attribute(tick, "x1") for tick in elements(drawn, "line", "grid")]
    left, right = ticks[0], ticks[-1]
    assert attribute(circle, "cx") == pytest.approx(left + 0.2 * (right - left), abs=0.1)
    assert attribute(square, "x") + attribute(square, "width") / 2 == pytest.approx(
        left + 0.8 * (right - left), abs=0.1
    )
    assert attribute(goal, "x1") == pytest.approx((left + right) / 2, abs=0.1)
    assert len(elements(drawn, "polygon", "store")) == 1


def test_bars_begin_at_the_left_end() -> None:
    line = ChartLine(label="a", values=(5.0,), texts=("5",))
    drawn = draw(chart(line, series=SERIES[1:2], are_bars=True))
    ticks = [attribute(tick, "x1") for tick in elements(drawn, "line", "grid")]
    _, bar = elements(drawn, "rect", "penstock")
    assert attribute(bar, "x") == ticks[0]
    assert attribute(bar, "width") == pytest.approx((ticks[-1] - ticks[0]) / 2, abs=0.1)


def test_everything_that_is_written_is_text_and_escaped() -> None:
    drawn = draw(chart(LINE))
    texts = [element.text for element in elements(drawn, "text")]
    assert {"Latency", "run & host", "ms", "goal", "produce", "1000 B <p16>", "2.00", "8.00", "-"} <= set(texts)
    assert elements(drawn, "path") == []


def test_without_goals_there_is_no_key_for_them() -> None:
    drawn = draw(chart(ChartLine(label="a", values=(1.0, 1.0, 1.0), texts=("1", "1", "1"))))
    assert elements(drawn, "line", "goal") == []
    assert "goal" not in [element.text for element in elements(drawn, "text")]


def test_title_and_description_name_the_chart_for_readers_of_screens() -> None:
    root = ElementTree.fromstring(draw(chart(LINE)))
    assert root.get("role") == "img"
    named = {element.get("id"): element.text for element in root if element.get("id")}
    assert root.attrib["aria-labelledby"].split() == list(named) == ["title", "desc"]
    assert named["title"] == "Latency"
    assert named["desc"] == "ms. produce, 1000 B <p16>: Kafka 2.00, Penstock 8.00, with MinIO -, goal 5."
    assert named["desc"] == description(chart(LINE))


def test_the_same_chart_is_drawn_the_same() -> None:
    assert draw(chart(LINE)) == draw(chart(LINE))


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_stand_out_from_the_page(colours: dict[str, str]) -> None:
    def contrast(name: str) -> float:
        lighter, darker = sorted((luminance(colours[name]), luminance(colours["page"])), reverse=True)
        return (lighter + 0.05) / (darker + 0.05)

    assert all(contrast(name) >= 4.5 for name in ("text", "faint"))
    assert all(contrast(name) >= 3 for name in ("kafka", "penstock", "store", "goal"))


def test_both_palettes_are_in_the_drawing() -> None:
    light, dark = draw(chart(LINE)).split("@media (prefers-color-scheme: dark)")
    assert LIGHT.keys() == DARK.keys()
    assert all(colour in light for colour in LIGHT.values())
    assert all(colour in dark for colour in DARK.values())


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    shares = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
