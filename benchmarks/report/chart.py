"""A chart as SVG: lines of values on one axis, in sections, the values in columns beside it.

Rule: pure and deterministic. Text stays text, marks differ by shape and not by colour alone, and the colours follow the
reader's choice of light or dark, on a background of their own: a page around may have chosen otherwise.
Source: SVG 2 for `title` and `desc`; WCAG 2.2, 1.4.3 and 1.4.11, for contrast.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

WIDTH, MARGIN = 900, 16
PLOT_LEFT, PLOT_GAP, COLUMN_WIDTH = 280, 4, 82
HEAD_HEIGHT, LINE_HEIGHT, SECTION_GAP = 96, 18, 12
MARK = 4
"""Half the height of a mark."""
TICKS_MAX = 8
ZERO_SHARE = 0.08
"""How much of a logarithmic axis lies between 0, if a value is 0, and its first power of ten."""
LIGHT = {"page": "#ffffff", "text": "#1f2328", "faint": "#59636e", "grid": "#d1d9e0"} | {
    "kafka": "#59636e",
    "penstock": "#0969da",
    "store": "#1a7f37",
    "goal": "#cf222e",
}
DARK = {"page": "#0d1117", "text": "#f0f6fc", "faint": "#9198a1", "grid": "#3d444d"} | {
    "kafka": "#9198a1",
    "penstock": "#4493f8",
    "store": "#3fb950",
    "goal": "#ff7b72",
}


class Axis(Protocol):
    """Where a value lies from 0, the left end, to 1, the right end."""

    def share(self, value: float) -> float: ...

    def ticks(self) -> Sequence[tuple[float, str]]:
        """Values and their labels."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAxis:
    """From 0 to `end`."""

    end: float

    def share(self, value: float) -> float:
        return value / self.end

    def ticks(self) -> Sequence[tuple[float, str]]:
        steps = (step * 10**power for power in range(-3, 9) for step in (1, 2.5, 5))
        step = next(step for step in steps if self.end / step <= TICKS_MAX)
        return [(step * number, f"{step * number:g}") for number in range(int(self.end / step) + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAxis:
    """From 10^`low` to 10^`high`. With `has_zero`, 0 has a place of its own at the left."""

    low: int
    high: int
    has_zero: bool

    @classmethod
    def around(cls, values: Sequence[float]) -> "LogAxis":
        """The powers of ten around what is above 0; none of `values` is below it."""
        logs = [math.log10(value) for value in values if value > 0] or [0.0]
        low = math.floor(min(logs))
        return cls(low=low, high=max(math.ceil(max(logs)), low + 1), has_zero=0 in values)

    def share(self, value: float) -> float:
        if value <= 0:
            return 0.0
        start = ZERO_SHARE if self.has_zero else 0.0
        return start + (math.log10(value) - self.low) / (self.high - self.low) * (1 - start)

    def ticks(self) -> Sequence[tuple[float, str]]:
        powers = [10.0**power for power in range(self.low, self.high + 1)]
        return [(value, f"{value:,.10g}") for value in ([0.0, *powers] if self.has_zero else powers)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSeries:
    """What has one value in each line. `style`: a name of the palette, which gives colour and shape."""

    name: str
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """`values` and their `texts`: one for each series, None where it has none. `is_summary`: of the lines after it."""

    label: str
    values: Sequence[float | None]
    texts: Sequence[str]
    goal: float | None = None
    is_summary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSection:
    title: str
    lines: Sequence[ChartLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`source`: what was measured where. `axis_title`: unit and scale. `are_bars`: from the left end, else marks."""

    title: str
    source: str
    axis_title: str
    axis: Axis
    series: Sequence[ChartSeries]
    sections: Sequence[ChartSection]
    are_bars: bool = False


def draw(chart: Chart) -> str:
    """The chart as one SVG document."""
    parts = [*_head(chart)]
    top = HEAD_HEIGHT
    body: list[str] = []
    for section in chart.sections:
        body.append(_text(MARGIN, top + 13, section.title, "b"))
        top += LINE_HEIGHT
        for line in section.lines:
            body += _line(chart, line, top)
            top += LINE_HEIGHT
        top += SECTION_GAP
    return "\n".join([_open(chart, top), *parts, *_grid(chart, top - SECTION_GAP), *body, "</svg>"]) + "\n"


def description(chart: Chart) -> str:
    """Every value in words, for those who hear the chart."""
    sentences = [f"{chart.axis_title}."]
    for section in chart.sections:
        for line in section.lines:
            named = zip(chart.series, line.texts, strict=True)
            values = ", ".join(f"{series.name} {text}" for series, text in named)
            goal = "" if line.goal is None else f", goal {line.goal:g}"
            sentences.append(f"{section.title}, {line.label}: {values}{goal}.")
    return " ".join(sentences)


def _open(chart: Chart, height: int) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            ' role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(chart.title)}</title>',
            f'<desc id="desc">{escape(description(chart))}</desc>',
            f"<style>\n{_rules(LIGHT)}",
            "text { font: 12px system-ui, sans-serif; } .h { font-size: 16px; font-weight: 600; }",
            ".b { font-weight: 600; } .r { text-anchor: end; } .m { text-anchor: middle; }",
            ".open { fill: none; stroke-width: 2; } .goal { stroke-width: 2; stroke-dasharray: 4 2; }",
            f"@media (prefers-color-scheme: dark) {{\n{_rules(DARK)}\n}}\n</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        ]
    )


def _rules(colours: dict[str, str]) -> str:
    """CSS for a palette: texts are filled, lines stroked, and marks are one or the other by their shape."""
    rules = [f".page {{ fill: {colours['page']}; }} text {{ fill: {colours['text']}; }}"]
    rules.append(f"text.faint {{ fill: {colours['faint']}; }}")
    rules += [f"line.{name} {{ stroke: {colours[name]}; }}" for name in ("grid", "goal")]
    rules += [f".{name} {{ fill: {colours[name]}; }}" for name in ("penstock", "store")]
    rules.append(f".kafka {{ stroke: {colours['kafka']}; }}")
    return "\n".join(rules)


def _head(chart: Chart) -> Iterator[str]:
    yield _text(MARGIN, 26, chart.title, "h")
    yield _text(MARGIN, 46, chart.source, "faint")
    yield _text(PLOT_LEFT, 70, chart.axis_title, "faint")
    if any(line.goal is not None for section in chart.sections for line in section.lines):
        yield f'<line class="goal" x1="{MARGIN + 6}" x2="{MARGIN + 6}" y1="60" y2="74"/>'
        yield _text(MARGIN + 14, 71, "goal", "faint")
    for column, series in enumerate(chart.series):
        right = _column_right(chart, column)
        yield _text(right, 71, series.name, "r")
        yield _mark(series.style, right - 6, 84)


def _grid(chart: Chart, bottom: int) -> Iterator[str]:
    for value, label in chart.axis.ticks():
        x = _x(chart, value)
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{HEAD_HEIGHT}" y2="{bottom}"/>'
        yield _text(x, HEAD_HEIGHT - 6, label, "faint m")


def _line(chart: Chart, line: ChartLine, top: int) -> Iterator[str]:
    middle = top + LINE_HEIGHT // 2
    yield _text(MARGIN + 8, middle + 4, line.label, "b" if line.is_summary else "")
    for column, (series, value, text) in enumerate(zip(chart.series, line.values, line.texts, strict=True)):
        yield _text(_column_right(chart, column), middle + 4, text, "r")
        if value is not None:
            x = _x(chart, value)
            yield _bar(series.style, x, middle) if chart.are_bars else _mark(series.style, x, middle)
    if line.goal is not None:
        x = _x(chart, line.goal)
        yield f'<line class="goal" x1="{x}" x2="{x}" y1="{top}" y2="{top + LINE_HEIGHT}"/>'


def _bar(style: str, right: float, middle: int) -> str:
    width = round(right - PLOT_LEFT, 1)
    return f'<rect class="{style}" x="{PLOT_LEFT}" y="{middle - MARK - 1}" width="{width}" height="{2 * MARK + 2}"/>'


def _mark(style: str, x: float, y: int) -> str:
    """Shapes that are seen where they lie upon each other: an open circle, a square, a triangle."""
    if style == "kafka":
        return f'<circle class="kafka open" cx="{x}" cy="{y}" r="{MARK + 1}"/>'
    if style == "penstock":
        return f'<rect class="penstock" x="{x - MARK + 1:g}" y="{y - MARK + 1}" width="6" height="6"/>'
    points = f"{x:g},{y - MARK} {x + MARK:g},{y + MARK} {x - MARK:g},{y + MARK}"
    return f'<polygon class="store" points="{points}"/>'


def _x(chart: Chart, value: float) -> float:
    plot_right = _column_right(chart, 0) - COLUMN_WIDTH - PLOT_GAP
    return round(PLOT_LEFT + chart.axis.share(value) * (plot_right - PLOT_LEFT), 1)


def _column_right(chart: Chart, column: int) -> int:
    return WIDTH - MARGIN - (len(chart.series) - 1 - column) * COLUMN_WIDTH


def _text(x: float, y: int, text: str, styles: str = "") -> str:
    attribute = f' class="{styles}"' if styles else ""
    return f'<text x="{x:g}" y="{y}"{attribute}>{escape(text)}</text>'
