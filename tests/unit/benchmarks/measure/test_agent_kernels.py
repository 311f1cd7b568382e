"""What is measured begins when all agents have their kernels."""

import itertools
from types import SimpleNamespace

import pytest

from benchmarks.cases import Case
from benchmarks.measure import agent_kernels
from benchmarks.measure.agent_kernels import RECORDS, KernelsMissing, load_kernels
from benchmarks.measure.exposition import KERNELS_LOADED


def test_records_are_written_until_the_last_agent_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[tuple[int, int]] = []

    def exposition(http: str) -> dict[str, float]:
        return {KERNELS_LOADED: float(len(rounds) >= int(http))}

    monkeypatch.setattr(agent_kernels, "scrape", exposition)

    def produce(case: Case, count: int) -> None:
        rounds.append((case.partitions, count))

    load_kernels(["0", "2", "1"], produce)
    assert rounds == [(36, RECORDS)] * 2
    load_kernels(["0"], produce)
    assert len(rounds) == 2


def test_an_agent_that_never_has_them_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_kernels, "scrape", lambda _: {})
    clock = itertools.count(step=50)
    monkeypatch.setattr(agent_kernels, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with pytest.raises(KernelsMissing, match="120"):
        load_kernels(["1"], lambda *_: None)
