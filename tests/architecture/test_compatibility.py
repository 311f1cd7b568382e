"""docs/compatibility.md names every API with the versions that are served, and every config of topics."""

import re

from coordinator.configs.topic_configs import TOPIC_CONFIGS, Effect
from protocol.api_versions import API_VERSIONS
from tests.architecture.source import ROOT

SECTION = re.compile(r"(?m)^### (\w+)\n\n- Versions: ([\d-]+)$")


def page() -> str:
    return (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")


def test_every_api_has_a_section_with_the_versions_that_are_served() -> None:
    sections = SECTION.findall(page())
    served = {
        row.name: f"{row.version_served_min}-{row.version_max}" if row.version_max else "0" for row in API_VERSIONS
    }
    assert len(sections) == len(dict(sections))
    assert dict(sections) == served


def test_every_topic_config_is_listed_by_its_effect() -> None:
    for word, effect in (("honoured", Effect.HONOURED), ("accepted without effect", Effect.NONE)):
        (row,) = re.findall(rf"(?m)^\| {word} \| (.*) \|$", page())
        assert re.findall(r"`([\w.]+)`", row) == [name for name, spec in TOPIC_CONFIGS.items() if spec.effect is effect]
