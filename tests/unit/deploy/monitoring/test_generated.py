"""The generated files are those of the code."""

import json

from deploy.monitoring.generated import BOARDS, CHART, FOLDER, MONITORING, files


def test_the_files_are_up_to_date() -> None:
    texts = files()
    for name, text in texts.items():
        assert (FOLDER / name).read_text() == text, f"deploy/{name} is out of date: run make monitoring"
    for folder in (MONITORING, CHART):
        written = {f"{folder}/dashboards/{path.name}" for path in (FOLDER / folder / "dashboards").iterdir()}
        assert written == {name for name in texts if name.startswith(f"{folder}/dashboards/")}


def test_there_are_six_dashboards_whose_ids_differ() -> None:
    dashboards = [json.loads(text) for name, text in files().items() if name.endswith(".json")]
    assert len({dashboard["uid"] for dashboard in dashboards}) == len(BOARDS) == 6


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    for name, text in files().items():
        if not name.endswith(".json"):
            continue
        panels = json.loads(text)["panels"]
        cells = [
            (x, y)
            for panel in panels
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells)), name
        assert all(x < 24 for x, _ in cells)
