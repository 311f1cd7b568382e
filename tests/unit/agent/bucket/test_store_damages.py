"""What is said of damage in the embedded store, and how often."""

from itertools import count
from pathlib import Path

import pytest

from agent.bucket.store_damages import StoreDamages
from protocol.limits import STORE_DAMAGES_LISTED_MAX
from storage.embedded.pack_store import PackStore
from storage.store_damage import StoreDamage


def test_a_part_is_logged_and_listed_once_however_often_it_is_read(caplog: pytest.LogCaptureFixture) -> None:
    damages = StoreDamages()
    for detail in ("found at the start", "found by a read"):
        damages.report(StoreDamage(file="1.pack", key="intake/1/0", detail=detail))
    damages.report(StoreDamage(file="1.pack", key="intake/1/1", detail="found by a read"))
    assert [damage.key for damage in damages.parts] == ["intake/1/0", "intake/1/1"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


@pytest.mark.parametrize(
    ("file", "name", "section"),
    [
        ("1.pack", "a pack of the embedded store", "A pack of the embedded store is damaged"),
        ("1.journal", "a file of the journal", "A file of the journal is damaged"),
    ],
)
def test_each_kind_of_file_has_its_name_and_its_page(
    caplog: pytest.LogCaptureFixture, file: str, name: str, section: str
) -> None:
    damages = StoreDamages()
    damages.report(StoreDamage(file=file, detail="torn", is_certain=False))
    damages.report(StoreDamage(file=file, detail="damaged"))
    torn, damaged = (record.getMessage() for record in caplog.records)
    assert torn.startswith(f"{name} ends in an incomplete write")
    assert damaged.startswith(f"{name} is damaged")
    assert damaged.endswith(f'docs/operations/damage.md, "{section}"')


def test_what_a_crash_may_have_torn_is_logged_and_no_damage(caplog: pytest.LogCaptureFixture) -> None:
    damages = StoreDamages()
    damages.report(StoreDamage(file="1.pack", detail="it ends at byte 40", is_certain=False))
    assert damages.parts == ()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_what_was_damaged_in_a_file_that_is_gone_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    damages = StoreDamages()
    kept = StoreDamage(file="2.pack", key="intake/1/2", detail="")
    for damage in (StoreDamage(file="1.pack", key="a", detail=""), kept, StoreDamage(file="1.pack", detail="b")):
        damages.report(damage)
    damages.forget("1.pack")
    assert damages.parts == (kept,)
    damages.forget("3.pack")
    damages.report(kept)
    assert damages.parts == (kept,)
    assert len(caplog.records) == 3


async def test_a_damaged_pack_of_which_all_is_deleted_is_told_no_more(tmp_path: Path) -> None:
    damages, nonces = StoreDamages(), count()

    def opened() -> PackStore:
        return PackStore(
            tmp_path / "packs",
            now_ms=lambda: 1,
            new_nonce=lambda: next(nonces).to_bytes(16, "big"),
            on_damage=damages.report,
            on_removed=damages.forget,
        )

    store = opened()
    await store.put("a", [b"content"])
    await store.close()
    (path,) = (tmp_path / "packs").iterdir()
    path.write_bytes(path.read_bytes().replace(b"content", b"c0ntent"))
    store = opened()
    assert [damage.key for damage in damages.parts] == ["a"]
    await store.put("b", [b"more"])
    assert [damage.file for damage in damages.parts] == [str(path)]
    await store.delete(["a"])
    await store.close()
    assert not path.exists()
    assert damages.parts == ()


def test_a_disk_that_is_damaged_all_over_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    damages = StoreDamages()
    for number in range(STORE_DAMAGES_LISTED_MAX + 5):
        damages.report(StoreDamage(file="1.pack", key=f"{number}", detail=""))
    assert len(damages.parts) == len(caplog.records) == STORE_DAMAGES_LISTED_MAX
