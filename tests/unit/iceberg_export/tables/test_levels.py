"""Which manifests are merged: few stay, and no file is written often."""

from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.tables.levels import merge_groups


def groups(*counts: int) -> tuple[tuple[int, ...], ...]:
    return merge_groups(counts, manifests_max=3, files_max=20)


def test_manifests_below_the_limit_of_their_level_stay() -> None:
    assert groups() == ()
    assert groups(1, 2, 4, 8) == ((0,), (1,), (2,), (3,))


def test_so_many_of_one_level_become_one() -> None:
    assert groups(9, 1, 8, 2, 1) == ((0,), (1, 3, 4), (2,))


def test_a_merge_that_fills_the_next_level_takes_that_along() -> None:
    assert groups(3, 3, 1, 1, 1) == ((0, 1, 2, 3, 4),)


def test_what_is_full_is_merged_no_more() -> None:
    assert groups(20, 25, 20) == ((0,), (1,), (2,))
    assert groups(9, 9, 9) == ((0, 1, 2),)


def test_manifests_that_lost_all_their_files_are_merged_as_if_they_held_one() -> None:
    assert groups(0, 0, 0) == ((0, 1, 2),)
    assert groups(0, 0, 0, 3, 3) == ((0, 1, 2, 3, 4),)


@given(st.lists(st.integers(0, 30), max_size=60))
def test_every_manifest_is_in_one_group(counts: list[int]) -> None:
    found = merge_groups(counts, manifests_max=3, files_max=20)
    assert sorted(index for group in found for index in group) == list(range(len(counts)))
    assert list(found) == sorted(found)


def test_a_file_is_written_about_once_a_level_and_the_list_stays_short() -> None:
    manifests: list[int] = []
    written = 0
    for _ in range(5_000):
        manifests.append(1)
        merged = []
        for group in merge_groups(manifests, manifests_max=16, files_max=1_024):
            size = sum(manifests[index] for index in group)
            if len(group) > 1 or group == (len(manifests) - 1,):
                written += size
            while size > 0:
                merged.append(min(size, 1_024))
                size -= 1_024
        manifests = merged
        assert len(manifests) <= 45 + sum(manifests) // 1_024
    assert sum(manifests) == 5_000
    assert written < 4 * 5_000
