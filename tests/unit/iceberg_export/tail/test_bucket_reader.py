"""Buckets as jobs open them by their addresses. What they hold: tests/contract/test_tail_reads.py."""

from pathlib import Path

import pytest

from iceberg_export.tail.bucket_reader import LocalReader, StoreReader, open_bucket
from storage.object_store import ObjectDamaged, ObjectMissing, StoreMisconfigured

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}


def test_a_folder_is_opened_without_changing_it(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "x").write_bytes(b"0123456789")
    bucket = open_bucket(tmp_path.as_uri(), {})
    assert isinstance(bucket, LocalReader)
    assert (bucket.get("ledger/x"), bucket.get_range("ledger/x", 2, 3)) == (b"0123456789", b"234")
    with pytest.raises(ObjectDamaged, match="it was cut"):
        bucket.get_range("ledger/x", 8, 3)
    for key in ("ledger/y", "intake/0000000000000001/0000000000000001"):
        with pytest.raises(ObjectMissing):
            bucket.get(key)
        with pytest.raises(ObjectMissing):
            bucket.get_range(key, 0, 1)
    bucket.close()
    assert [path.name for path in tmp_path.rglob("*")] == ["ledger", "x"]


def test_a_folder_is_the_one_that_the_url_says_letter_by_letter(tmp_path: Path) -> None:
    for name in ("a b", "a%20b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_bytes(name.encode())
    for name in ("a b", "a%20b"):
        assert open_bucket(f"file://{tmp_path}/{name}", {}).get("key") == name.encode()


def test_an_s3_bucket_is_opened_by_the_usual_variables() -> None:
    bucket = open_bucket("s3://lake/data", KEYS)
    assert isinstance(bucket, StoreReader)
    bucket.close()


@pytest.mark.parametrize("url", ["memory:", "file://host/x", "/srv/store", "s3://", "file:///no/such/folder"])
def test_what_is_no_bucket_is_refused_with_what_would_be_one(url: str) -> None:
    with pytest.raises(StoreMisconfigured):
        open_bucket(url, KEYS)
