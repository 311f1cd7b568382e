"""Runs cases against a broker and compares its answers with Kafka's recorded ones and with what is known to differ.

Rule: a difference is allowed only as docs/compatibility.md lists it, word for word. A row there whose difference is
gone is as wrong as a difference without a row. A case that needs an API which the broker does not list is not run.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compat.protocol_diff.engine import Answers, Run
from tests.compat.protocol_diff.logins import Logins
from tests.compat.protocol_diff.messages import Definitions
from tests.compat.protocol_diff.plain import differences
from tests.compat.protocol_diff.steps import Case

RECORDED = Path(__file__).parent / "kafka-4.3.1.json"
PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"
TABLE_HEADER = "| case | request | Kafka 4.3.1 | Penstock | why |"
THREADS = 8
DENIED_THREADS = 40
"""A client without rights mostly waits: for the barrier of each denial, and for what never comes."""
DENIED_TABLE_HEADER = "| case without rights | request | Kafka 4.3.1 | Penstock | why |"
TOKEN_TABLE_HEADER = "| case of delegation tokens | request | Kafka 4.3.1 | Penstock | why |"
MANY = "; "
ON_A_FRESH_BROKER = ("idempotent.first-not-zero",)
"""Asked first and alone: what is answered depends on whether a topic was deleted before (safety rule S8)."""


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """All that differs in a case's answers to one request in one version."""

    case: str
    request: str
    kafka: str
    penstock: str

    def __str__(self) -> str:
        return f"| `{self.case}` | {self.request} | {self.kafka} | {self.penstock} |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a comparison found."""

    equal: list[str]
    listed: list[str]
    """Cases that differ exactly as docs/compatibility.md says."""
    not_listed: list[Difference]
    gone: list[Difference]
    """What docs/compatibility.md lists and the broker no longer does."""
    not_served: Mapping[str, set[str]]
    """Cases that were not run, with the APIs that they lack."""

    @property
    def is_passed(self) -> bool:
        return not self.not_listed and not self.gone

    @property
    def _lacking(self) -> str:
        counts = Counter(api for apis in self.not_served.values() for api in apis)
        return ", ".join(f"{api} {count}" for api, count in sorted(counts.items()))

    def lines(self) -> Iterator[str]:
        yield from (f"not listed in docs/compatibility.md: {each}" for each in self.not_listed)
        yield from (f"does not differ any more, remove it from the list: {each}" for each in self.gone)
        if self.not_served:
            yield f"cases that lack an API: {self._lacking}"
        run_count = len(self.equal) + len(self.listed) + len({each.case for each in self.not_listed})
        yield (
            f"{run_count} cases run: {len(self.equal)} as Kafka 4.3.1, {len(self.listed)} differ as listed; "
            f"{len(self.not_served)} not served yet"
        )


def compare(
    bootstrap: str,
    cases: Sequence[Case],
    definitions: Definitions,
    *,
    served: set[str],
    recorded: Mapping[str, Answers],
    allowed: Sequence[Difference],
    is_any_leader: bool = False,
    logins: Logins | None = None,
) -> Report:
    """Runs every case that needs no more than the APIs `served`, several at a time.

    With `is_any_leader` the broker is asked about every partition, whoever leads it.
    """
    not_served = {case.name: case.needs - served for case in cases if case.needs - served}
    run = [case for case in cases if case.name not in not_served]
    answers = ask(bootstrap, run, definitions, is_any_leader=is_any_leader, logins=logins)
    names = {case.name for case in run}
    expected = {each for each in allowed if each.case in names}
    found = {each for case in run for each in case_differences(case, recorded[case.name], answers[case.name])}
    not_listed, gone = sorted(found - expected), sorted(expected - found)
    wrong = {each.case for each in [*not_listed, *gone]}
    differing = {each.case for each in found}
    return Report(
        equal=[case.name for case in run if case.name not in differing],
        listed=[case.name for case in run if case.name in differing - wrong],
        not_listed=not_listed,
        gone=gone,
        not_served=not_served,
    )


def ask(
    bootstrap: str,
    cases: Sequence[Case],
    definitions: Definitions,
    *,
    is_any_leader: bool = False,
    logins: Logins | None = None,
) -> dict[str, Answers]:
    """Each case's answers in comparable form, as they read back from JSON."""
    run_id = f"{random.randrange(10**8):08d}"

    def ask_one(case: Case) -> tuple[str, Answers]:
        run = Run(bootstrap, definitions, run_id, case, is_any_leader=is_any_leader, logins=logins)
        answers = run.answers()
        return case.name, _from_json(json.loads(json.dumps(answers)))

    told = dict(ask_one(case) for case in cases if case.name in ON_A_FRESH_BROKER)
    with ThreadPoolExecutor(THREADS if logins is None else DENIED_THREADS) as threads:
        told |= threads.map(ask_one, [case for case in cases if case.name not in told])
    return {case.name: told[case.name] for case in cases}


def read_recorded(file: Path = RECORDED) -> dict[str, Answers]:
    return {name: _from_json(answers) for name, answers in json.loads(file.read_text(encoding="utf-8")).items()}


def write_recorded(answers: Mapping[str, Answers], file: Path) -> None:
    """One line per case. Other cases of the file stay as they are."""
    merged = {**read_recorded(file), **answers} if file.exists() else answers
    rows = (f"{json.dumps(name)}: {json.dumps(each)}" for name, each in merged.items())
    file.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def case_differences(case: Case, kafka: Answers, penstock: Answers) -> list[Difference]:
    """What differs, one row per kind of request."""
    found: dict[str, list[tuple[str, str]]] = {}
    for (label, theirs), (_, ours) in zip(kafka, penstock, strict=False):
        step = case.steps[int(label.partition(":")[0])]
        found.setdefault(f"{step.api} {step.version}", []).extend(differences(theirs, ours))
    if len(kafka) != len(penstock):
        last = penstock[-1] if penstock else ("", "nothing")
        found["steps"] = [(f"{len(kafka)} answered", f"{len(penstock)} answered, the last: {last[0]} {last[1]}")]
    return [
        Difference(
            case=case.name,
            request=request,
            kafka=MANY.join(theirs for theirs, _ in unique),
            penstock=MANY.join(ours for _, ours in unique),
        )
        for request, each in found.items()
        if (unique := list(dict.fromkeys(each)))
    ]


def read_allowed(text: str | None = None, *, header: str = TABLE_HEADER) -> list[Difference]:
    """The table of docs/compatibility.md. Raises `ValueError` for a row without a reason, or a case named twice."""
    lines = iter((PAGE.read_text(encoding="utf-8") if text is None else text).splitlines())
    for line in lines:
        if line.strip() == header:
            next(lines)
            break
    rows: list[Difference] = []
    for line in lines:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 5 or not all(cells):
            raise ValueError(
                f"a row must have a case, a request, Kafka's answer, Penstock's answer and a reason: {line}"
            )
        names, request, kafka, penstock, _ = cells
        rows += [Difference(name, request, kafka, penstock) for name in re.findall(r"`([^`]+)`", names)]
    twice = {each for each in rows if rows.count(each) > 1}
    if twice:
        raise ValueError(f"listed twice: {', '.join(map(str, sorted(twice)))}")
    return rows


def _from_json(answers: list[list[Any]]) -> Answers:
    return [(label, answer) for label, answer in answers]
