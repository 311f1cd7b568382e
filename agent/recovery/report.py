"""The report of a recovery: what came back, what is lost, and the rows of it that `penstock recover` prints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from agent.recovery.number_gaps import NumberGap
from coordinator.recovery.recovered_topics import TopicRecovered


@dataclass(slots=True, kw_only=True)
class RecoveryReport:
    """The result of a recovery: what came back, and what is lost."""

    cluster_id: str
    incarnation: int
    """The incarnation that begins, or would begin."""
    snapshot_key: str
    """Empty where no snapshot can be read: then everything comes from the intake."""
    snapshot_checked_by: str = ""
    """The checks that the snapshot passed, in words."""
    position: int
    """The position of the snapshot."""
    entries: int = 0
    """The ledger entries that were applied to the snapshot: those that the ledger still has without a gap."""
    is_carried_out: bool = False
    seconds_ahead: int = 0
    """How far the ledger's time is ahead of the current time; negative where it is behind."""
    acls: int = 0
    scram_credentials: int = 0
    delegation_tokens: int = 0
    delegation_tokens_removed: int = 0
    """Tokens of the snapshot that end with the recovery, because their owners may have expired them since."""
    security_known_ms: int = 0
    """The ledger's time up to which ACLs and credentials are known; 0 where none is."""
    are_acls_confirmed: bool = True
    """Whether agents serve by the ACLs; if not, they serve super users alone until somebody confirms them."""
    sessions_ended: int = 0
    transactions_aborted: int = 0
    """Transactions that were open in the known state. Lost entries may have committed them."""
    objects_known: int = 0
    """Objects of the snapshot that are in the bucket."""
    objects_committed: int = 0
    objects_left: int = 0
    """Objects of ended sessions that the state does not know: for the garbage collector."""
    topics: list[TopicRecovered] = field(default_factory=list[TopicRecovered])
    missing: list[str] = field(default_factory=list[str])
    """Objects of the snapshot that are not in the bucket: their records are lost."""
    damaged: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Unreadable snapshots, intake objects and files of the store, with the reasons."""
    number_gaps: list[NumberGap] = field(default_factory=list[NumberGap])
    """Intake objects that are not in the bucket though later ones of their session are. They were not acknowledged, or
    are lost: nothing says which, so they need no acceptance."""
    passed_over: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Other names in the bucket: not of Penstock, or not needed for a recovery, with the reasons. No loss."""

    @property
    def has_losses(self) -> bool:
        """Whether anything that may have been acknowledged does not come back."""
        of_transactions = sum(topic.of_transactions for topic in self.topics)
        return bool(self.missing or self.damaged or self.transactions_aborted or of_transactions)


def report_rows(report: RecoveryReport) -> Mapping[str, object]:
    """The report's values by name, without its lists."""
    return {
        "cluster": report.cluster_id,
        "incarnation": report.incarnation,
        "snapshot": report.snapshot_key or "none could be read",
        "snapshot_checked_by": report.snapshot_checked_by or "nothing",
        "position": report.position,
        "ledger_entries": report.entries,
        "seconds_ahead": report.seconds_ahead,
        "acls": report.acls,
        "scram_credentials": report.scram_credentials,
        "delegation_tokens": report.delegation_tokens,
        "delegation_tokens_removed": report.delegation_tokens_removed,
        "security_known_until": _time_text(report.security_known_ms),
        "are_acls_confirmed": report.are_acls_confirmed,
        "sessions_ended": report.sessions_ended,
        "transactions_aborted": report.transactions_aborted,
        "objects_known": report.objects_known,
        "intake_objects_committed": report.objects_committed,
        "objects_for_garbage_collection": report.objects_left,
        "objects_missing": len(report.missing),
        "objects_damaged": len({key for key, _ in report.damaged}),
        "intake_numbers_absent": sum(gap.count for gap in report.number_gaps),
        "entries_passed_over": len(report.passed_over),
    }


def _time_text(time_ms: int) -> str:
    if time_ms <= 0:
        return "no time is known"
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
