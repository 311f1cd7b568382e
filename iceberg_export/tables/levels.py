"""Selects the manifests of a snapshot to merge, so that the manifest list stays short.

The manifests form levels, as in a log-structured merge tree. A manifest's level is the magnitude of its count of files.
The manifests of a full level become one manifest of a higher level; a full manifest is not merged again. So each file's
entry is written about once in each level. The list has a few rows for each level, and one for each full manifest.
"""

from collections.abc import Sequence


def merge_groups(file_counts: Sequence[int], *, manifests_max: int, files_max: int) -> tuple[tuple[int, ...], ...]:
    """The groups of manifests to merge, as indexes into `file_counts`. A group of one manifest is not merged.

    `file_counts`: the count of files in each manifest. `manifests_max`: the count at which the manifests of a level are
    merged. `files_max`: the count of files at which a manifest is full. Groups and their indexes are ascending.
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
            # The result counts as one level higher at least: manifests without files add nothing to its count, which
            # alone would leave it at their level.
            levels.setdefault(max(_level(count, manifests_max), level + 1), []).append(merged)
    return tuple(sorted(groups))


def _level(count: int, manifests_max: int) -> int:
    """How often `count` can be divided by `manifests_max` before it is below it."""
    level = 0
    while count >= manifests_max:
        count //= manifests_max
        level += 1
    return level
