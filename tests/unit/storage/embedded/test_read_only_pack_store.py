"""What a pack store does that is opened for reading only: it finds what a writer finds, and changes nothing."""

from pathlib import Path

import pytest

from storage.object_store import ObjectMissing, StoreMisconfigured
from tests.support.packs.pack_stores import FULL, contents, open_store, opened


async def test_who_does_not_write_finds_what_a_writer_finds_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "packs"
    async with opened(folder) as store:
        await store.put("a", [FULL])
        (first,) = folder.iterdir()
        unmarked = first.read_bytes()
        await store.put("a", [b"replaced"])
        await store.put("b", [b"b" * 200])
    first.write_bytes(unmarked)  # as a crash leaves it before an object that was replaced is marked
    last = max(folder.iterdir())
    last.write_bytes(last.read_bytes()[:-100])  # and in the middle of a write
    before = files_of(folder)
    reading = open_store(folder, is_writer=False)
    try:
        with pytest.raises(StoreMisconfigured, match="another process"):
            open_store(folder)
        found = await contents(reading)
        for refused in (reading.put("c", [b"c"]), reading.delete(["a"])):
            with pytest.raises(StoreMisconfigured, match="opened for reading only"):
                await refused
    finally:
        await reading.close()
    assert files_of(folder) == before
    async with opened(folder) as writing:
        assert await contents(writing) == found
    assert found == {"a": b"replaced"}
    after = files_of(folder)
    assert {name for name in before if after[name] != before[name]} == {first.name, last.name}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_who_does_not_write_needs_no_folder_and_makes_none(tmp_path: Path) -> None:
    folder = tmp_path / "packs"
    store = open_store(folder, is_writer=False)
    assert await contents(store) == {}
    with pytest.raises(ObjectMissing):
        await store.get("a")
    await store.close()
    assert not folder.exists()
