"""Says in the log what listings come upon that is no object of Penstock, or cannot be looked at (safety rule S20).

People, their file managers and other programs leave files in a bucket, and a disk may fail to answer for a single one.
Every listing passes over names that it does not know; this module logs them, once for the same ones.
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
    """Whether a key is of a shape that Penstock gives to objects of intake, lake and ledger. Others come into a bucket
    too: they say nothing of its ledger, and nothing is lost by them."""
    return (
        session_of_key(key) is not None
        or topic_of_copy(key) is not None
        or position_of_key(key) is not None
        or key == TAIL_KEY
    )


class Strangers:
    """The strange objects of one listing that is repeated."""

    def __init__(self) -> None:
        self._reported = (0, "")

    def report_those_of(self, listing: Iterable[ObjectMeta]) -> None:
        """Pick the strange objects out of a whole listing, and report them."""
        strange = [meta for meta in listing if meta.fault or not is_shape_known(meta.key)]
        self.report(len(strange), strange[0] if strange else None)

    def report(self, count: int, first: ObjectMeta | None) -> None:
        """Warn of so many, unless it was of as many with the same first one the last time."""
        reported = (count, "" if first is None else first.key)
        if first is not None and reported != self._reported:
            log.warning(
                "entries in the bucket that this cluster did not write, or that cannot be looked at; they stay: "
                f"penstock audit names each ({REMEDY})",
                extra={
                    "count": count,
                    "first": printable(first.key),
                    "reason": first.fault or "neither its name nor its session is known",
                },
            )
        self._reported = reported
