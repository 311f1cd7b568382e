"""docs/plots shows the results that documents quote, as they are, and docs/BENCHMARKS.md shows every plot."""

import pytest

from benchmarks.report.plots import plots
from benchmarks.report.result_file import RESULTS
from tests.architecture.source import ROOT
from tests.support.documents import links

FOLDER = ROOT / "docs" / "plots"
QUOTED = sorted(path.stem for path in RESULTS.glob("quoted-*.json"))


@pytest.mark.parametrize("name", QUOTED)
def test_plots_are_what_a_result_gives(name: str) -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob(f"{name}-*.svg")}
    assert written == plots(name), f'out of date: run make bench ARGS="--report {name} --plots docs/plots"'


def test_every_plot_is_of_a_quoted_result_and_shown() -> None:
    shown = {link for link in links((ROOT / "docs" / "BENCHMARKS.md").read_text(encoding="utf-8")) if ".svg" in link}
    assert shown == {f"plots/{path.name}" for path in FOLDER.iterdir()}
    assert shown == {f"plots/{file}" for name in QUOTED for file in plots(name)}
