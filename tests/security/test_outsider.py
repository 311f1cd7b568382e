"""The tries of one tenant at another's, all stopped and all in the audit topic. `make security` prints the table."""

from pathlib import Path

import pytest

from tests.security.outsider import play


@pytest.mark.slow
def test_one_tenant_reaches_nothing_of_another(tmp_path: Path) -> None:
    report = play(tmp_path)
    assert not report.problems, report.table()
