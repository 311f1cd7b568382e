"""The bucket as Spark's processes read it, beside whoever writes it."""

import os
from pathlib import Path

import pytest

from iceberg_export.spark.bucket import Bucket, open_bucket
from iceberg_export.spark.options import OptionError
from storage.decorators.routed import RoutedStore
from storage.embedded.journal.format import RECORDS_FIRST
from storage.embedded.journal.opening import JOURNAL_FOLDER
from storage.embedded.journal.reader import JournalReader
from storage.embedded.local_store import PACKS_FOLDER, LocalStore
from storage.embedded.pack_format import PACK_HEADER_BYTES
from storage.embedded.pack_reader import PackReader
from storage.embedded.pack_store import PackStore
from storage.memory_store import MemoryStore
from storage.object_store import ObjectDamaged, ObjectMissing, StoreMisconfigured
from storage.refs import INTAKE_PREFIX
from tests.support.journal.journal_bytes import flipped
from tests.support.journal.opened_journals import opened_journal


def test_a_directory_is_read_while_its_writer_holds_it(tmp_path: Path) -> None:
    files = LocalStore(tmp_path, is_durable=False)
    packs = PackStore(tmp_path / PACKS_FOLDER, now_ms=lambda: 1, new_nonce=lambda: os.urandom(16), is_durable=False)
    writer = Bucket(RoutedStore(INTAKE_PREFIX, packs, files))
    reader = open_bucket(f"file://{tmp_path}", {})
    with pytest.raises(ObjectMissing):
        reader.get_range("intake/1/1", 0, 1)
    writer.run(writer.store.put("intake/1/1", [b"0123456789"]))
    writer.run(writer.store.put("lake/t/data/f", [b"abcdef"]))
    assert reader.get_range("intake/1/1", 2, 3) == b"234"
    assert reader.get("intake/1/1") == b"0123456789"
    assert reader.begin_range("lake/t/data/f", 1, 2).result() == b"bc"
    writer.run(writer.store.put("intake/1/2", [b"later"]))
    assert reader.get_range("intake/1/2", 0, 5) == b"later"
    writer.run(writer.store.delete(["lake/t/data/f"]))
    with pytest.raises(ObjectMissing):
        reader.get("lake/t/data/f")
    writer.close()


def test_a_directory_is_read_without_changing_it(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "x").write_bytes(b"0123456789")
    bucket = open_bucket(f"file://{tmp_path}", {})
    with pytest.raises(ObjectDamaged, match="it was cut"):
        bucket.get_range("ledger/x", 8, 3)
    for key in ("ledger/y", "intake/0000000000000001/0000000000000001"):
        with pytest.raises(ObjectMissing):
            bucket.get(key)
        with pytest.raises(ObjectMissing):
            bucket.get_range(key, 0, 1)
    assert [path.name for path in tmp_path.rglob("*")] == ["ledger", "x"]


class TestIntakeOfAnEmbeddedBroker:
    """It is in a journal beside the bucket. What was there before there was a journal is in packs, until it is gone."""

    @pytest.fixture
    def bucket(self, tmp_path: Path) -> Path:
        folder = tmp_path / "store"
        folder.mkdir()
        return folder

    def put_into_packs(self, bucket: Path, *keys: str) -> Path:
        packs = PackStore(bucket / PACKS_FOLDER, now_ms=lambda: 1, new_nonce=lambda: os.urandom(16), is_durable=False)
        writer = Bucket(packs)
        for key in keys:
            writer.run(packs.put(key, [b"in packs"]))
        writer.close()
        return next((bucket / PACKS_FOLDER).iterdir())

    @pytest.mark.parametrize("damaged", ["", "packs", "journal"])
    def test_objects_are_found_in_either_though_the_other_has_damage(self, bucket: Path, damaged: str) -> None:
        pack = self.put_into_packs(bucket, "intake/1/1", "intake/1/2")
        with opened_journal(bucket.parent / JOURNAL_FOLDER) as user:
            user.append("intake/1/3", payload=b"damaged")
            user.append("intake/1/4", payload=b"in the journal")
            if damaged == "packs":
                pack.write_bytes(flipped(pack.read_bytes(), PACK_HEADER_BYTES * 8 + 100))
            if damaged == "journal":
                file = user.last_file()
                file.write_bytes(flipped(file.read_bytes(), RECORDS_FIRST * 8 + 100))
            reader = open_bucket(f"file://{bucket}", {})
            assert reader.get("intake/1/4") == b"in the journal"
            assert reader.get("intake/1/2") == b"in packs"
            error = ObjectDamaged if damaged else ObjectMissing
            with pytest.raises(error):
                reader.get({"": "intake/9/9", "packs": "intake/1/1", "journal": "intake/1/3"}[damaged])

    def test_the_journal_is_not_looked_through_for_what_is_in_packs(
        self, bucket: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.put_into_packs(bucket, "intake/1/1")
        looks: list[str] = []
        monkeypatch.setattr(JournalReader, "get", lambda _, key: looks.append(key))
        assert open_bucket(f"file://{bucket}", {}).get("intake/1/1") == b"in packs"
        assert looks == []

    def test_packs_are_not_looked_through_for_what_is_known_to_be_in_the_journal(
        self, bucket: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with opened_journal(bucket.parent / JOURNAL_FOLDER) as user:
            user.append("intake/1/1", "intake/1/2")
            reader = open_bucket(f"file://{bucket}", {})
            reader.get("intake/1/1")
            monkeypatch.setattr(PackReader, "get_range", None)
            assert reader.get_range("intake/1/2", 0, 3) == b"pay"


def test_a_directory_is_the_one_that_the_url_says_letter_by_letter(tmp_path: Path) -> None:
    for name in ("a b", "a%20b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_bytes(name.encode())
    for name in ("a b", "a%20b"):
        assert open_bucket(f"file://{tmp_path}/{name}", {}).get("key") == name.encode()


def test_one_process_has_one_client_of_a_bucket(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    assert open_bucket(url, {}) is open_bucket(url, {})
    assert open_bucket(url, {}) is not open_bucket(url, {"AWS_REGION": "eu-1"})


@pytest.mark.parametrize("url", ["bucket", "gs://bucket", "file://host/path", "file:///not/there"])
def test_what_is_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(OptionError):
        open_bucket(url, {})


def test_what_s3_cannot_be_told_is_refused() -> None:
    with pytest.raises(StoreMisconfigured, match="AWS_ALLOW_HTTP"):
        open_bucket("s3a://bucket/prefix", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": ""})


def test_a_bucket_that_was_closed_gave_its_thread_back() -> None:
    bucket = Bucket(MemoryStore())
    bucket.pause(0.0)
    bucket.close()
    assert not bucket._thread.is_alive()
