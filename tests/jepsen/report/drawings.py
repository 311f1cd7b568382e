"""Anomalies drawn as SVG: a cycle as the calls that it goes through, records as the part of the log where they stand.

Rule: what a drawing shows is in the history; it is cut short where there is more, and says so.
"""

from collections.abc import Mapping, Sequence
from html import escape

from tests.jepsen.checks.anomaly import Anomaly
from tests.jepsen.graph.evidence import reads_of
from tests.jepsen.graph.version_order import EMPTY, VersionOrder
from tests.jepsen.history.history import Call, History, MicroPoll, Op

AROUND = 3
"""Places of the log that are drawn on both sides of a record concerned."""
CALLS_MAX = 8
TEXT_LENGTH_MAX = 120
RECORDS_MAX = 6

WIDTH, MARGIN = 960, 60
BOX_HEIGHT, STEP_HEIGHT = 54, 46
CELL_WIDTH, CELL_HEIGHT, LABEL_WIDTH = 62, 30, 290


def figure(anomaly: Anomaly, history: History, orders: Mapping[str, VersionOrder]) -> str:
    """The drawing of an anomaly."""
    if anomaly.steps:
        return cycle_svg(anomaly, history)
    return log_svg(anomaly, history, orders.get(anomaly.key, EMPTY))


def cycle_svg(cycle: Anomaly, history: History) -> str:
    """The calls of a cycle, one below the other, with what leads from each to the next and from the last back."""
    rows = [_box(place, history.calls[step.call]) for place, step in enumerate(cycle.steps)]
    arrows = [_arrow_down(place, step.relation, step.text) for place, step in enumerate(cycle.steps[:-1])]
    last = cycle.steps[-1]
    reason = _shown(f"{last.relation}: {last.text}")
    bottom = _top(len(cycle.steps) - 1) + BOX_HEIGHT
    back = (
        f'<path class="edge {last.relation}" d="M {MARGIN} {bottom - BOX_HEIGHT // 2} H 20 V {BOX_HEIGHT // 2 + 10} '
        f'H {MARGIN - 4}" marker-end="url(#tip)"/>'
        f'<text class="why {last.relation}" x="{MARGIN}" y="{bottom + 20}">{reason}</text>'
    )
    return _svg(WIDTH, bottom + 34, [*rows, *arrows, back])


def log_svg(anomaly: Anomaly, history: History, order: VersionOrder = EMPTY) -> str:
    """The log of the key around the values concerned, and below it what each call concerned read and wrote there."""
    columns = _columns(anomaly, order)
    cells = [_cell(place, column, anomaly, order) for place, column in enumerate(columns)]
    calls = anomaly.calls[:CALLS_MAX]
    rows = [_row(row, history.calls[call], anomaly.key, columns, order) for row, call in enumerate(calls)]
    key = f'<text class="name" x="0" y="{CELL_HEIGHT + 10}">{_shown(anomaly.key)}</text>'
    width = LABEL_WIDTH + CELL_WIDTH * max(1, len(columns))
    return _svg(width, (len(calls) + 2) * CELL_HEIGHT + 10, [key, *cells, *rows])


def micros_text(op: Op) -> str:
    """The micro-operations of a call in a line."""
    texts: list[str] = []
    for micro in op.micros:
        if isinstance(micro, MicroPoll):
            polled = [f"{key}: {_some([value for _, value in pairs])}" for key, pairs in micro.records.items() if pairs]
            texts.append(f"poll {{{'; '.join(polled)}}}")
        else:
            at = "" if micro.offset is None else f" @{micro.offset}"
            texts.append(f"send {micro.key} {micro.value}{at}")
    return ", ".join(texts)


def call_title(call: Call) -> str:
    """What identifies a call: the line of its end, how it ended, whose it was and of which lines it is."""
    op = call.completed
    client = f", {call.invoked.client}" if call.invoked.client else ""
    return f"T{op.index} {op.f} {op.type}: process {op.process}{client}, begun at line {call.invoked.index}"


def _some(values: Sequence[int]) -> str:
    more = "" if len(values) <= RECORDS_MAX else f" … {values[-1]}"
    return " ".join(map(str, values[:RECORDS_MAX])) + more


def _top(place: int) -> int:
    return 10 + place * (BOX_HEIGHT + STEP_HEIGHT)


def _box(place: int, call: Call) -> str:
    top = _top(place)
    return (
        f'<rect class="call {call.completed.type}" x="{MARGIN}" y="{top}" width="{WIDTH - MARGIN - 10}" '
        f'height="{BOX_HEIGHT}" rx="6"/>'
        f'<text class="name" x="{MARGIN + 12}" y="{top + 21}">{_shown(call_title(call))}</text>'
        f'<text x="{MARGIN + 12}" y="{top + 42}">{_shown(micros_text(call.completed))}</text>'
    )


def _arrow_down(place: int, relation: str, text: str) -> str:
    top = _top(place) + BOX_HEIGHT
    return (
        f'<path class="edge {relation}" d="M {MARGIN + 30} {top} V {top + STEP_HEIGHT - 4}" marker-end="url(#tip)"/>'
        f'<text class="why {relation}" x="{MARGIN + 44}" y="{top + 28}">{_shown(f"{relation}: {text}")}</text>'
    )


def _columns(anomaly: Anomaly, order: VersionOrder) -> list[int | str]:
    """What is drawn from left to right: indexes of the log, gaps between them, values that stand nowhere in it."""
    places = {order.indexes[value] for value in anomaly.values if value in order.indexes}
    places |= {index for index, offset in enumerate(order.offsets) if offset in anomaly.offsets}
    near = sorted({index for place in places for index in range(place - AROUND, place + AROUND + 1)})
    columns: list[int | str] = []
    for index in (index for index in near if 0 <= index < len(order.values)):
        if columns and columns[-1] != index - 1:
            columns.append("…")
        columns.append(index)
    placed = {value for _, value in order.placed()}
    return columns + [str(value) for value in anomaly.values if value not in placed]


def _cell(place: int, column: int | str, anomaly: Anomaly, order: VersionOrder) -> str:
    left = LABEL_WIDTH + place * CELL_WIDTH
    if column == "…":
        return f'<text class="middle" x="{left + CELL_WIDTH // 2}" y="{CELL_HEIGHT + 10}">…</text>'
    if isinstance(column, str):
        values, offset = [int(column)], "nowhere"
    else:
        values = sorted(order.conflicts.get(column, {order.values[column]}))
        offset = f"@{order.offsets[column]}"
    is_concerned = not set(values).isdisjoint(anomaly.values)
    told = _shown(" | ".join(map(str, values)))
    return (
        f'<text class="middle offset" x="{left + CELL_WIDTH // 2}" y="12">{offset}</text>'
        f'<rect class="cell{" concerned" if is_concerned else ""}" x="{left + 1}" y="18" '
        f'width="{CELL_WIDTH - 2}" height="{CELL_HEIGHT}"/>'
        f'<text class="middle" x="{left + CELL_WIDTH // 2}" y="{CELL_HEIGHT + 8}">{told}</text>'
    )


def _row(row: int, call: Call, key: str, columns: Sequence[int | str], order: VersionOrder) -> str:
    """What a call did with the places that are drawn: the number of the poll's record in its order, or "sent"."""
    baseline = (row + 2) * CELL_HEIGHT + 14
    op = call.completed
    marks = {send.value: "sent" for send in op.sends() if send.key == key}
    for number, (_, value) in enumerate(reads_of(op).get(key, ()), start=1):
        marks[value] = f"{marks[value]}, {number}" if value in marks else f"read {number}"
    name = _shown(f"T{op.index} {op.f} {op.type}, process {op.process}")
    texts = [f'<text class="name" x="0" y="{baseline}">{name}</text>']
    for place, column in enumerate(columns):
        mark = next((marks[value] for value in _values_at(column, order) if value in marks), None)
        if mark is not None:
            left = LABEL_WIDTH + place * CELL_WIDTH + CELL_WIDTH // 2
            texts.append(f'<text class="middle mark" x="{left}" y="{baseline}">{mark}</text>')
    return "".join(texts)


def _values_at(column: int | str, order: VersionOrder) -> Sequence[int]:
    if column == "…":
        return ()
    if isinstance(column, str):
        return (int(column),)
    return sorted(order.conflicts.get(column, {order.values[column]}))


def escaped(text: str) -> str:
    """The text as HTML and XML; characters that XML does not have are shown as question marks."""
    return escape("".join(character if character.isprintable() or character == "\n" else "?" for character in text))


def _shown(text: str) -> str:
    return escaped(text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…")


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" markerHeight="5" orient="auto">'
        '<path d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>' + "".join(parts) + "</svg>"
    )
