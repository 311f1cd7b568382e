"""docs/UNSUPPORTED.md tells the versions that are served."""

import re

from protocol.api_versions import API_VERSIONS
from tests.architecture.source import ROOT

ROW = re.compile(r"(?m)^\| (\w+) \| ([\d-]+) \|")


def test_every_api_stands_there_with_the_versions_that_are_served() -> None:
    text = (ROOT / "docs" / "UNSUPPORTED.md").read_text(encoding="utf-8")
    served = {
        row.name: f"{row.version_served_min}-{row.version_max}" if row.version_max else "0" for row in API_VERSIONS
    }
    assert dict(ROW.findall(text)) == served
