"""Logs entries of listings that are no objects of Penstock, or that the store cannot describe (safety rule S20).

People, file managers and other programs leave files in a bucket, and a disk may fail for a single one. Every listing
skips names that it does not know; this module logs them, once while they stay the same.
"""

import logging
from collections.abc import Iterable

from storage.keys import printable
from storage.object_store import ObjectMeta
from storage.refs import TAIL_KEY, position_of_key, session_of_key, topic_of_copy

log = logging.getLogger(__name__)

LEDGER_PREFIX = "ledger/"
"""The prefix of snapshots, marks and the tail manifest."""
REMEDY = 'docs/operations/audit.md, "Audit: do bucket, ledger and state agree?"'


def is_shape_known(key: str) -> bool:
    """Whether the key has the form of an intake, lake or ledger object of Penstock."""
    return (
        session_of_key(key) is not None
        or topic_of_copy(key) is not None
        or position_of_key(key) is not None
        or key == TAIL_KEY
    )


class Strangers:
    """The unknown entries of one listing that is repeated."""

    def __init__(self) -> None:
        self._reported = (0, "")

    def report_those_of(self, listing: Iterable[ObjectMeta]) -> None:
        """Report the unknown entries of a whole listing."""
        strange = [meta for meta in listing if meta.fault or not is_shape_known(meta.key)]
        self.report(len(strange), strange[0] if strange else None)

    def report(self, count: int, first: ObjectMeta | None) -> None:
        """Log `count` unknown entries, unless their number and the first one are as at the last time."""
        reported = (count, "" if first is None else first.key)
        if first is not None and reported != self._reported:
            log.warning(
                "the bucket has entries that this cluster did not write, or that the store cannot describe; they are "
                f"left alone. Run penstock audit for their names ({REMEDY})",
                extra={
                    "count": count,
                    "first": printable(first.key),
                    "reason": first.fault or "its name, or its session, is unknown",
                },
            )
        self._reported = reported
