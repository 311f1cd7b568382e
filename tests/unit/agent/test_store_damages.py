"""What is said of damage in the embedded store, and how often."""

import pytest

from agent.store_damages import StoreDamages
from protocol.limits import STORE_DAMAGES_LISTED_MAX
from storage.store_damage import StoreDamage


def test_a_part_is_logged_and_listed_once_however_often_it_is_read(caplog: pytest.LogCaptureFixture) -> None:
    damages = StoreDamages()
    for detail in ("found at the start", "found by a read"):
        damages.report(StoreDamage(file="1.pack", key="intake/1/0", detail=detail))
    damages.report(StoreDamage(file="1.pack", key="intake/1/1", detail="found by a read"))
    assert [damage.key for damage in damages.found] == ["intake/1/0", "intake/1/1"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_what_a_crash_may_have_torn_is_logged_and_no_damage(caplog: pytest.LogCaptureFixture) -> None:
    damages = StoreDamages()
    damages.report(StoreDamage(file="1.pack", detail="it ends at byte 40", is_certain=False))
    assert damages.found == ()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_disk_that_is_damaged_all_over_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    damages = StoreDamages()
    for number in range(STORE_DAMAGES_LISTED_MAX + 5):
        damages.report(StoreDamage(file="1.pack", key=f"{number}", detail=""))
    assert len(damages.found) == len(caplog.records) == STORE_DAMAGES_LISTED_MAX
