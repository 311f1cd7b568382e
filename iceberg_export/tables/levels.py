"""Which manifests of a snapshot are merged, so that their list stays short.

Rule: like a log-structured merge tree. A manifest's level is the magnitude of how many files it holds; when a level is
full, its manifests become one of a higher level, and a full manifest is merged no more. So each file is written about
once a level, and the list has a few rows a level and one for each full manifest.
"""

from collections.abc import Sequence


def merge_groups(file_counts: Sequence[int], *, manifests_max: int, files_max: int) -> tuple[tuple[int, ...], ...]:
    """Which manifests belong together, as indexes into `file_counts`: how many files each holds. A group of one stays
    as it is. Groups, and indexes within one, are ascending.

    `manifests_max`: so many of one level are merged. `files_max`: one of so many files is full.
    """
    groups: list[tuple[int, ...]] = []
    levels: dict[int, list[tuple[int, ...]]] = {}
    for index, count in enumerate(file_counts):
        if count >= files_max:
            groups.append((index,))
        else:
            levels.setdefault(_level(count, manifests_max), []).append((index,))
    while levels:
        level = min(levels)
        members = levels.pop(level)
        if len(members) < manifests_max:
            groups += members
            continue
        merged = tuple(sorted(index for member in members for index in member))
        count = sum(file_counts[index] for index in merged)
        if count >= files_max:
            groups.append(merged)
        else:
            # Manifests that hold nothing have the level of one file, and so many of them are no more than that.
            levels.setdefault(max(_level(count, manifests_max), level + 1), []).append(merged)
    return tuple(sorted(groups))


def _level(count: int, manifests_max: int) -> int:
    """How often `count` can be divided by `manifests_max`."""
    level = 0
    while count >= manifests_max:
        count //= manifests_max
        level += 1
    return level
