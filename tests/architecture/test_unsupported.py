"""docs/UNSUPPORTED.md tells the versions that are served."""

import re

from coordinator.configs.topic_configs import TOPIC_CONFIGS, Effect
from protocol.api_versions import API_VERSIONS
from tests.architecture.source import ROOT

ROW = re.compile(r"(?m)^\| (\w+) \| ([\d-]+) \|")


def test_every_api_stands_there_with_the_versions_that_are_served() -> None:
    text = (ROOT / "docs" / "UNSUPPORTED.md").read_text(encoding="utf-8")
    served = {
        row.name: f"{row.version_served_min}-{row.version_max}" if row.version_max else "0" for row in API_VERSIONS
    }
    assert dict(ROW.findall(text)) == served


def test_every_topic_config_stands_there_as_what_it_does() -> None:
    text = (ROOT / "docs" / "UNSUPPORTED.md").read_text(encoding="utf-8")
    for word, effect in (("honoured", Effect.HONOURED), ("accepted without effect", Effect.NONE)):
        (row,) = re.findall(rf"(?m)^\| {word} \| (.*) \|$", text)
        assert re.findall(r"`([\w.]+)`", row) == [name for name, spec in TOPIC_CONFIGS.items() if spec.effect is effect]
