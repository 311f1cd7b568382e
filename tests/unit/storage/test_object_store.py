"""What a listing may give in the place of an object."""

import pytest

from storage.object_store import ObjectMeta


@pytest.mark.parametrize(
    ("key", "fault", "hides_others"),
    [
        ("lake/a/", "it could not be listed", True),
        ("lake/a/", "", False),
        ("lake/a", "it could not be looked at", False),
    ],
)
def test_only_a_folder_with_a_fault_hides_others(key: str, fault: str, *, hides_others: bool) -> None:
    """An object of a bucket may have a name that ends as a folder's does."""
    assert ObjectMeta(key=key, size_bytes=0, modified_ms=0, fault=fault).hides_others == hides_others
