"""Compares bucket, ledger and state, and reports what disagrees.

The audit does not use the state in an agent's memory: it loads the state from the snapshot and the entries, and checks
both against the pointer's digest and the head's count (safety rules S3, S9). A repair deletes the leftovers of ended
sessions by the rules of the garbage collector, and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from agent.bucket.cluster_identity import check_bucket, check_reached
from agent.bucket.store_damages import StoreDamages
from agent.bucket.strangers import LEDGER_PREFIX, is_shape_known
from agent.ledger.bootstrap import load_state
from coordinator.invariants import check
from coordinator.ledger.port import Ledger, LedgerCorrupt
from coordinator.state.state import ClusterState
from protocol.limits import AUDIT_DISAGREEMENTS_LISTED_MAX, GC_DELETIONS_PER_STEP_MAX
from storage.gc_plan import judge_listed
from storage.keys import is_key, printable
from storage.object_store import (
    ObjectDamaged,
    ObjectMissing,
    ObjectRejected,
    ObjectsNotDeleted,
    ObjectStore,
    StoreError,
)
from storage.refs import INTAKE_PREFIX, LAKE_PREFIX

if TYPE_CHECKING:
    from agent.recovery.deep_audit import AuditProgress


_UNREADABLE: Final = -1
_UNKNOWN: Final = "no ledger entry names it or its session, so no agent will ever delete it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One finding. `what` is its kind, `subject` the key of an object, or what else it is about."""

    what: str
    subject: str
    detail: str


@dataclass(slots=True, kw_only=True)
class AuditReport:
    """The result of an audit. Counts are of objects. Only `disagreements` are faults; the counts vary in operation."""

    cluster_id: str
    incarnation: int
    position: int = 0
    referenced: int = 0
    referenced_bytes: int = 0
    released: int = 0
    """Released objects that wait for the end of their grace, or for a snapshot."""
    in_flight: int = 0
    """Objects of live sessions that the state does not know: not committed yet, or leftovers at the session's end."""
    leftovers: int = 0
    """Objects of ended sessions that the state does not know: the garbage collector deletes them."""
    deleted: int = 0
    """Leftovers that the repair deleted."""
    read_objects: int = 0
    """Objects that --deep read completely."""
    read_bytes: int = 0
    disagreements: list[Disagreement] = field(default_factory=list[Disagreement])

    def to_dict(self) -> Mapping[str, object]:
        """For JSON, with the first `AUDIT_DISAGREEMENTS_LISTED_MAX` disagreements."""
        values = asdict(self)
        values["disagreements"] = values["disagreements"][:AUDIT_DISAGREEMENTS_LISTED_MAX]
        return {**values, "disagreements_count": len(self.disagreements)}


@dataclass(slots=True, kw_only=True)
class _Listing:
    """The listing of the bucket."""

    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """The sizes of intake and lake objects in bytes, by key."""
    faults: dict[str, str] = field(default_factory=dict[str, str])
    """The reasons why the store could not read entries, by name."""
    strange: list[str] = field(default_factory=list[str])
    """Names below the ledger's prefix that are not keys of Penstock."""

    def fault(self, key: str) -> str:
        """The reason why the listing may lack an object; empty where it lists everything."""
        names = (name for name in self.faults if key == name or key.startswith(f"{name.removesuffix('/')}/"))
        return next((self.faults[name] for name in names), "")


class Audit:
    """One audit; `run` once."""

    def __init__(
        self,
        ledger: Ledger,
        store: ObjectStore,
        *,
        grace_ms: int,
        undeletable: Mapping[str, str] | None = None,
        damages: StoreDamages | None = None,
    ) -> None:
        """`undeletable`: garbage that the store did not delete, with the reasons. `damages`: those that an embedded
        store has found in its files.
        """
        self._damages = damages or StoreDamages()
        self._ledger = ledger
        self._store = store
        self._grace_ms = grace_ms
        self._undeletable = dict(undeletable or {})

    async def run(
        self, *, is_repairing: bool, is_deep: bool = False, progress: "AuditProgress | None" = None
    ) -> AuditReport:
        """Run the audit; `is_deep` also reads every stored byte.

        Raises `LedgerUnavailable` and `StoreUnavailable`: try again.
        """
        identity = await self._ledger.identity()
        self._report = AuditReport(cluster_id=identity.cluster_id, incarnation=identity.incarnation)
        try:
            await check_bucket(self._store, identity, appends_count=1)  # 1: an audit must not claim an empty bucket
            await check_reached(self._store, self._ledger)
            listing = await self._list()
            state = (await load_state(self._ledger, self._store)).follower.state
        except LedgerCorrupt as error:
            self._disagree("ledger", identity.cluster_id, str(error))
            return self._report
        for damage in self._damages.parts:
            self._disagree("damaged", damage.key or damage.file, f"{damage.file}: {damage.detail}")
        self._report.position, self._report.released = state.position, len(state.released)
        for fault in check(state):
            self._disagree("state", identity.cluster_id, fault)
        await self._compare_referenced(state, listing)
        await self._compare_others(state, list(listing.sizes), is_repairing=is_repairing)
        self._report_strange(state, listing)
        if is_deep:
            await self._read_all(state, progress)
        for key, reason in self._undeletable.items():
            if await self._size(key) is not None:
                self._disagree("undeletable", key, f"it is garbage that the store does not delete: {reason}")
        return self._report

    async def _read_all(self, state: ClusterState, progress: "AuditProgress | None") -> None:
        from agent.recovery.deep_audit import DeepAudit  # imports the readers of tables, which are slow to load

        deep = DeepAudit(state=state, store=self._store, progress=progress)
        await deep.run()
        self._report.read_objects, self._report.read_bytes = deep.objects, deep.byte_count
        for damage in deep.found:
            self._disagree("damaged", damage.key, damage.detail)

    def _disagree(self, what: str, subject: str, detail: str) -> None:
        self._report.disagreements.append(Disagreement(what=what, subject=subject, detail=detail))

    async def _list(self) -> _Listing:
        listing = _Listing()
        for prefix in (INTAKE_PREFIX, LAKE_PREFIX, LEDGER_PREFIX):
            async for meta in self._store.list(prefix):
                if meta.fault:
                    listing.faults[meta.key] = meta.fault
                elif prefix != LEDGER_PREFIX:
                    listing.sizes[meta.key] = meta.size_bytes
                elif not is_shape_known(meta.key):
                    listing.strange.append(meta.key)
        return listing

    async def _compare_referenced(self, state: ClusterState, listing: _Listing) -> None:
        """Check that each object of the state exists with the size that the state has."""
        missing: list[str] = []
        for known in state.objects.values():
            self._report.referenced += 1
            self._report.referenced_bytes += known.object_bytes
            size_bytes = listing.sizes.get(known.key)
            if size_bytes is None:
                fault = listing.fault(known.key)
                size_bytes = await (self._size_despite(known.key, fault) if fault else self._size(known.key))
            if size_bytes == _UNREADABLE:
                continue
            if size_bytes is None:
                missing.append(known.key)
            elif size_bytes != known.object_bytes:
                detail = f"it has {size_bytes} bytes, in the state {known.object_bytes}"
                self._disagree("size", known.key, detail)
        # Agents go on during the audit: an object may have become garbage since, and is in no newer state then.
        if missing:
            now = (await load_state(self._ledger, self._store)).follower.state
            for key in missing:
                object_id = now.object_ids.get(key)
                if object_id is not None:
                    rows = now.objects[object_id].references
                    self._disagree("missing", key, f"the bucket lacks it, and {rows} chunks refer to it")

    async def _compare_others(self, state: ClusterState, keys: Sequence[str], *, is_repairing: bool) -> None:
        """Check that every other object is in flight, or garbage that will be deleted."""
        verdict = judge_listed(
            keys,
            position=state.position,
            referenced=state.object_ids,
            released=state.released,
            sessions_live=state.sessions,
            sessions_ended=state.sessions_ended,
            topics=state.topics,
            time_ms=state.time_ms,
            grace_ms=self._grace_ms,
        )
        known = sum(key in state.object_ids or key in state.released for key in keys)
        self._report.leftovers = len(verdict.deletable) + len(verdict.waiting)
        self._report.in_flight = len(keys) - known - self._report.leftovers - len(verdict.unknown)
        for key in verdict.unknown:
            # A name of another program may not be a key, so it cannot be requested (safety rule S20).
            if not is_key(key) or await self._size(key) is not None:
                self._disagree("unknown", printable(key), _UNKNOWN)
        if is_repairing:
            await self._delete(verdict.deletable)

    def _report_strange(self, state: ClusterState, listing: _Listing) -> None:
        """Report the other names of the listing. Objects of the state are reported by `_compare_referenced`."""
        for key in listing.strange:
            self._disagree("unknown", printable(key), _UNKNOWN)
        for name, fault in listing.faults.items():
            if name in state.object_ids:
                continue
            if name.endswith("/") or is_shape_known(name):
                self._disagree("unreadable", printable(name), fault)
            else:
                self._disagree("unknown", printable(name), f"{fault}: no agent will ever delete it")

    async def _delete(self, keys: Sequence[str]) -> None:
        for first in range(0, len(keys), GC_DELETIONS_PER_STEP_MAX):
            step = keys[first : first + GC_DELETIONS_PER_STEP_MAX]
            reasons: Mapping[str, StoreError] = {}
            try:
                await self._store.delete(step)
            except ObjectsNotDeleted as error:
                reasons = error.reasons
            self._report.deleted += len(step) - len(reasons)
            self._undeletable |= {key: str(reason) for key, reason in reasons.items()}

    async def _size_despite(self, key: str, fault: str) -> int | None:
        """The size of an object that the listing could not read; `_UNREADABLE` if it still cannot be read, None if it
        certainly does not exist.
        """
        try:
            return (await self._store.head(key)).size_bytes
        except ObjectMissing:
            return None
        except (ObjectDamaged, ObjectRejected) as error:
            self._disagree("unreadable", key, f"{error} ({fault})")
            return _UNREADABLE

    async def _size(self, key: str) -> int | None:
        try:
            return (await self._store.head(key)).size_bytes
        except (ObjectMissing, ObjectDamaged):
            return None
