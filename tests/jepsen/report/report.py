"""A verdict as a page: what was found, each kind with its meaning and its worst cases drawn, and what was measured.

Rule: one file without references to others, well-formed as XML too; texts of clients are escaped.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.jepsen.checks.anomaly import MEANINGS, Anomaly, Kind
from tests.jepsen.checks.checker import Found, Verdict
from tests.jepsen.history.history import TYPES, History
from tests.jepsen.report.drawings import CALLS_MAX, call_title, escaped, figure, micros_text

DRAWN_MAX = 8
"""Anomalies of a kind that are drawn."""
ROWS_MAX = 20
NS_PER_SECOND = 1_000_000_000

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; color: #1c1c1c; }
h1 { margin-bottom: 0.2em; } h2 { margin-top: 2em; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; } td, th { padding: 3px 12px; text-align: left; border-bottom: 1px solid #e4e4e4; }
td.count { text-align: right; font-variant-numeric: tabular-nums; }
.verdict { display: inline-block; padding: 4px 16px; border-radius: 6px; color: white; font-weight: bold; }
.valid { background: #2a7d3f; } .invalid { background: #b3261e; }
.error { color: #b3261e; font-weight: bold; } .allowed { color: #666; }
figure { margin: 1em 0 2em; overflow-x: auto; } figcaption { max-width: 100ch; }
pre { white-space: pre-wrap; font-size: 12px; background: #f6f6f6; padding: 8px; }
svg { font: 13px system-ui, sans-serif; } svg .name { font-weight: 600; } svg .middle { text-anchor: middle; }
svg .offset { font-size: 11px; fill: #777; } svg .mark { fill: #1a56a8; }
svg .cell { fill: #f2f2f2; stroke: #bbb; } svg .concerned { fill: #ffd9d4; stroke: #b3261e; }
svg .call { fill: #eef4ee; stroke: #6a9c74; } svg .info { fill: #fdf6e3; stroke: #b59b4c; }
svg .fail { fill: #fbe9e7; stroke: #c4756c; }
svg path.edge { fill: none; stroke-width: 2; } svg .why { font-size: 12px; }
svg path.ww { stroke: #8a4fbf; } svg path.wr { stroke: #1a56a8; }
svg path.process { stroke: #2a7d3f; } svg path.realtime { stroke: #a06a00; }
svg text.ww { fill: #8a4fbf; } svg text.wr { fill: #1a56a8; }
svg text.process { fill: #2a7d3f; } svg text.realtime { fill: #a06a00; }
"""

HOW_TO_READ = (
    "A call is named T with the line of the history at which it ended. In a drawing of a log each place has its offset "
    "above and its value in it; those concerned are red. Below stands what the calls concerned did there: sent it, or "
    "read it as the how-manieth record of the key in that call. In a drawing of a cycle each arrow says why one call "
    "comes before the next: ww, it wrote the value right before; wr, the other read what it wrote; process, the same "
    "process did it earlier; realtime, it had ended before the other began."
)


def render(history: History, verdict: Verdict, title: str) -> str:
    """The page of a verdict on this history."""
    name = "valid" if verdict.is_valid else "not valid"
    body = [
        f"<h1>{escaped(title)}</h1>",
        f'<p><span class="verdict {"valid" if verdict.is_valid else "invalid"}">{name}</span></p>',
        f"<p>{len(history.calls)} calls, {len(verdict.orders)} keys, "
        f"{sum(len(order.values) for order in verdict.orders.values())} records; "
        + ("in the end everything was read.</p>" if verdict.has_final_read else "the history has no final read.</p>"),
        "<h2>What was found</h2>",
        _kinds(verdict) if verdict.found else "<p>No anomaly of any kind.</p>",
        f"<p>{HOW_TO_READ}</p>" if verdict.found else "",
        *(_section(kind, found, history, verdict) for kind, found in verdict.found.items()),
        "<h2>What was measured</h2>",
        *_measures(verdict),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        f"<title>{escaped(title)}: {name}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _kinds(verdict: Verdict) -> str:
    rows = [
        (f'<a href="#{kind}">{kind}</a>', _judgement(found), str(found.count), escaped(MEANINGS[kind]))
        for kind, found in verdict.found.items()
    ]
    return _table(("anomaly", "", "how often", "meaning"), rows, counts=(2,))


def _judgement(found: Found) -> str:
    return '<span class="error">error</span>' if found.is_error else '<span class="allowed">allowed</span>'


def _section(kind: Kind, found: Found, history: History, verdict: Verdict) -> str:
    drawn = found.shown[:DRAWN_MAX]
    more = f"<p>{found.count - len(drawn)} more are not drawn.</p>" if found.count > len(drawn) else ""
    figures = "\n".join(_figure(anomaly, history, verdict) for anomaly in drawn)
    heading = f'<h2 id="{kind}">{kind}: {found.count} {_judgement(found)}</h2>'
    return f"{heading}\n<p>{escaped(MEANINGS[kind])}</p>\n{figures}\n{more}"


def _figure(anomaly: Anomaly, history: History, verdict: Verdict) -> str:
    """A drawing below its text, with the calls concerned as the history has them."""
    calls = [history.calls[call] for call in anomaly.calls[:CALLS_MAX]]
    told = "\n".join(f"{call_title(call)}\n    {micros_text(call.completed)}" for call in calls)
    details = f"<details><summary>calls</summary><pre>{escaped(told)}</pre></details>" if told else ""
    drawing = figure(anomaly, history, verdict.orders)
    return f"<figure><figcaption>{escaped(anomaly.text)}</figcaption>{drawing}{details}</figure>"


def _measures(verdict: Verdict) -> Iterable[str]:
    counts: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for (function, kind, client), count in verdict.call_counts.items():
        counts[client, function][kind] = count
    ends = TYPES[1:]
    rows = [
        (escaped(client), function, *(str(by_kind.get(kind, 0)) for kind in ends))
        for (client, function), by_kind in sorted(counts.items())
    ]
    yield "<h3>Calls</h3>" + _table(("client", "call", *ends), rows, counts=(2, 3, 4))
    causes = sorted(verdict.info_causes.items(), key=lambda cause: -cause[1])
    rows = [(str(count), escaped(cause)) for cause, count in causes]
    yield "<h3>Why nobody knows how calls ended</h3>" + _table(("how often", "cause"), rows, counts=(0,))
    rows = [(f"{lag.lag_ns / NS_PER_SECOND:.3f}", escaped(lag.key), str(lag.process)) for lag in verdict.lags]
    yield "<h3>Worst lags of consumers</h3>" + _table(("seconds", "key", "process"), rows, counts=(0,))
    rows = [(str(each.count), escaped(each.key), str(each.value), str(each.process)) for each in verdict.consumed_again]
    heading = "<h3>Records that a subscribed consumer got more than once</h3>"
    yield heading + _table(("how often", "key", "value", "process"), rows, counts=(0,))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, counts: Sequence[int]) -> str:
    """Rows of cells that are HTML already; `counts` are the columns that hold numbers."""
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th>{each}</th>" for each in heads)
    lines = [
        "<tr>" + "".join(f"<td{_class(place in counts)}>{cell}</td>" for place, cell in enumerate(row)) + "</tr>"
        for row in rows[:ROWS_MAX]
    ]
    more = f"<p>{len(rows) - ROWS_MAX} more.</p>" if len(rows) > ROWS_MAX else ""
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>{more}"


def _class(is_count: object) -> str:
    return ' class="count"' if is_count else ""
