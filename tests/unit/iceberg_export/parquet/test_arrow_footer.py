"""Footers of files: what is no footer is rejected with an error of the store."""

import pytest

from iceberg_export.parquet.arrow_footer import read_footer
from iceberg_export.rows.footer import FileUnreadable, footer_bytes
from storage.object_store import StoreError


@pytest.mark.parametrize("tail", [b"", b"PAR1", b"\0\0\0\0PAR2"])
def test_an_end_that_is_not_parquet_is_rejected(tail: bytes) -> None:
    with pytest.raises(FileUnreadable):
        footer_bytes(tail)


def test_a_footer_of_rubbish_is_rejected() -> None:
    with pytest.raises(FileUnreadable):
        read_footer(b"rubbish!" + (8).to_bytes(4, "little") + b"PAR1")


def test_its_error_is_one_of_the_store() -> None:
    assert issubclass(FileUnreadable, StoreError)
