"""Synchronises external catalogs: each topic's entry names the table metadata that the ledger names.

An entry is a copy of the ledger's pointer. Rendezvous hashing names the agent that synchronises a topic, or the name of
a deleted one. A catalog that cannot compare and swap may lag, or show an older version for a moment. The limits and the
decision are in docs/adr/0014-external-catalogs.md.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

from agent.config.addresses import S3Url, read_store_url, store_root
from agent.config.external_catalog_settings import ExternalCatalogSettings
from agent.config.settings import Settings
from agent.lake.file_io import s3_file_io
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.outages import Outage, OutageWords
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.threads import PatientThread
from coordinator.state.rendezvous import owner_of, owners_of, staying
from coordinator.state.state import TopicState
from iceberg_export.external_catalogs.entries import CatalogFailed, Entries, open_entries, without_leaks
from protocol.limits import (
    EXTERNAL_CATALOG_BACKOFF_SECONDS_FIRST,
    EXTERNAL_CATALOG_BACKOFF_SECONDS_MAX,
    EXTERNAL_CATALOG_CALL_SECONDS_MAX,
    EXTERNAL_CATALOG_CHECK_INTERVAL_S,
    EXTERNAL_CATALOG_FAILURES_IN_A_ROW_MAX,
    EXTERNAL_CATALOG_RECHECK_INTERVAL_S,
)
from protocol.types import SessionId, TopicId
from storage.refs import topic_of_metadata_key
from storage.s3.settings import S3Settings

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
LIST = "list"
"""The name, in the log, of operations on the whole catalog."""
Opener = Callable[[ExternalCatalogSettings, str], Entries]


class NotOurs(Exception):
    """An entry with a topic's name refers to metadata that no agent of this cluster wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownEntry:
    """The last known content of an entry: the metadata of one version of a table."""

    metadata_key: str
    version: int
    checked_s: float


@dataclass(slots=True, kw_only=True)
class _CatalogBackoff:
    """The end of the pause after a failure, and the length of the next pause."""

    until_s: float = 0.0
    next_s: float = EXTERNAL_CATALOG_BACKOFF_SECONDS_FIRST

    def begin(self, now_s: float) -> None:
        self.until_s = now_s + self.next_s
        self.next_s = min(2 * self.next_s, EXTERNAL_CATALOG_BACKOFF_SECONDS_MAX)


def open_with_pyiceberg(settings: ExternalCatalogSettings, root: str) -> Entries:
    """Open an external catalog. Blocks; raises any exception of its client."""
    return open_entries(
        catalog_name=settings.name, properties=settings.properties, namespace=settings.namespace, root=root
    )


def external_catalog_syncs(
    settings: Settings, *, ledger: LedgerClient, clock: Clock, metrics: Metrics
) -> Sequence["ExternalCatalogSync"]:
    """The catalog syncs for an agent's settings."""
    root = store_root(read_store_url(settings.store_url))
    file_io = bucket_properties(settings) if settings.external_catalogs else {}
    return [
        ExternalCatalogSync(
            settings=replace(catalog, properties={**file_io, **catalog.properties}),
            root=root,
            ledger=ledger,
            clock=clock,
            metrics=metrics,
        )
        for catalog in settings.external_catalogs
    ]


def bucket_properties(settings: Settings) -> Mapping[str, str]:
    """The properties with which PyIceberg reads the bucket as the agent does; `--external-catalogs` overrides them."""
    if not isinstance(read_store_url(settings.store_url), S3Url):
        return {}
    properties = s3_file_io(S3Settings.from_environment(settings.store_url, os.environ), None)
    return {name: value for name, value in properties.items() if name.startswith("s3.")}


class ExternalCatalogSync:
    """Synchronises one external catalog. Every agent has one for each in its settings. `root` is the bucket's URI."""

    def __init__(
        self,
        *,
        settings: ExternalCatalogSettings,
        root: str,
        ledger: LedgerClient,
        clock: Clock,
        metrics: Metrics,
        opener: Opener = open_with_pyiceberg,
    ) -> None:
        self._settings = settings
        self._root = root
        self._ledger = ledger
        self._clock = clock
        self._opener = opener
        self._thread = PatientThread(f"catalog-{settings.name}")
        self._entries: Entries | None = None
        self._known: dict[TopicId, _KnownEntry] = {}
        self._behind_s: dict[TopicId, float] = {}
        """Topics of this agent whose entries are out of date, with the monotonic time at which that was noticed."""
        self._is_suspect = False
        """Whether so many calls failed that the catalog may be unavailable."""
        self._pause = _CatalogBackoff()
        self._pauses: dict[TopicId, _CatalogBackoff] = {}
        self._conflicts: dict[TopicId, str] = {}
        """The reasons why topics' entries are left alone."""
        self._last_error: str | None = None
        self._failed_s = 0.0
        """The monotonic time of `_last_error`."""
        self._is_selected: dict[TopicId, bool] = {}
        """Whether the catalog's `topics` pattern matches a topic."""
        self._seen_topics: set[TopicId] = set()
        self._members: frozenset[SessionId] = frozenset()
        self._foreign: set[TopicId] = set()
        """Topics that belong to other agents while `_members` are the live sessions."""
        self._sweep_s: float | None = None
        """The time of the next search for entries of deleted topics; None: now."""
        words = OutageWords(
            fails=f"the external catalog {settings.name} is not updated: the agent tries again until it answers, and "
            "then moves its entries to the newest tables. Fix the reason; "
            'docs/operations/external-catalogs.md, "A catalog does not follow"',
            answers=f"the external catalog {settings.name} is updated again",
        )
        self._outage = Outage(words, monotonic_s=clock.monotonic_s)
        self._lag = metrics.external_catalog_lag_seconds.labels(settings.name)
        self._commits_behind = metrics.external_catalog_commit_lag.labels(settings.name)
        self._conflict_count = metrics.external_catalog_conflicts.labels(settings.name)
        self._failures = metrics.external_catalog_errors.labels(settings.name)
        self._updates = metrics.external_catalog_updates.labels(settings.name)

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name=f"catalog {self._settings.name}", interval_s=EXTERNAL_CATALOG_CHECK_INTERVAL_S, run_once=self.sync
        )

    async def close(self) -> None:
        """Close the catalog's connections, for a caller whose process goes on."""
        if self._entries is not None:
            await self._thread.run(self._entries.close)

    async def sync(self) -> None:
        """Update the entries that are out of date, except during a pause after errors. Raises `LedgerUnavailable`."""
        due = self._due()
        try:
            if self._clock.monotonic_s() >= self._pause.until_s:
                await self._work(due)
        finally:
            self._report()

    def view(self) -> Mapping[str, object]:
        """The status for this agent's topics, as of the last `sync`. `last_error` stays after the error is over."""
        error_age_s = None if self._last_error is None else round(self._clock.monotonic_s() - self._failed_s, 1)
        lag_s, commits = self._behind()
        return {
            "catalog": self._settings.name,
            "type": self._settings.properties["type"],
            "namespace": ".".join(self._settings.namespace),
            "tables": len(self._known),
            "conflicts": len(self._conflicts),
            "commit_lag": commits,
            "lag_s": round(lag_s, 1),
            "last_error": self._last_error,
            "last_error_s_ago": error_age_s,
        }

    async def _work(self, due: list[TopicId]) -> None:
        is_sweep_due = self._sweep_s is None or self._clock.monotonic_s() >= self._sweep_s
        if not due and not is_sweep_due:
            return
        try:
            entries = await self._connect()
            if self._pause.until_s > 0:
                self._pause = _CatalogBackoff()
                self._pauses.clear()
                due = self._due()
            if await self._sync_all(entries, due) and is_sweep_due:
                is_complete = await self._sweep(entries)
                pause_s = EXTERNAL_CATALOG_RECHECK_INTERVAL_S if is_complete else EXTERNAL_CATALOG_BACKOFF_SECONDS_MAX
                self._sweep_s = self._clock.monotonic_s() + pause_s
            self._outage.answered(LIST)
        except CatalogFailed as error:
            self._failed(LIST, str(error))
            self._is_suspect = True
            self._pause.begin(self._clock.monotonic_s())

    async def _connect(self) -> Entries:
        """The catalog; after suspicious failures one cheap call tests it first. Raises `CatalogFailed`."""
        if self._entries is None:
            self._entries = await self._call(self._opener, self._settings, self._root)
        elif self._is_suspect:
            await self._call(self._entries.names)
        self._is_suspect = False
        return self._entries

    async def _sync_all(self, entries: Entries, due: list[TopicId]) -> bool:
        """Synchronise topics. False after so many failures in a row that the catalog itself may be unavailable."""
        failures = 0
        # Topics that failed come last: one that fails each time delays no other. Stale entries come before rechecks.
        for topic_id in sorted(due, key=lambda each: (each in self._pauses, each not in self._behind_s)):
            topic = self._ledger.state.topics.get(topic_id)
            operation = topic_id.hex() if topic is None else topic.name
            try:
                await self._sync_topic(entries, topic_id)
            except CatalogFailed as error:
                self._failed(operation, str(error))
                self._postpone(topic_id)
                failures += 1
                if failures >= EXTERNAL_CATALOG_FAILURES_IN_A_ROW_MAX:
                    self._is_suspect = True
                    return False
                continue
            except NotOurs as error:
                self._postpone(topic_id)
                self._last_error, self._failed_s = f"{operation}: {error}", self._clock.monotonic_s()
                if self._conflicts.get(topic_id) != str(error):
                    self._conflicts[topic_id] = str(error)
                    log.error(
                        "a table is not synchronised with an external catalog: %s",
                        error,
                        extra={"catalog": self._settings.name, "topic": operation},
                    )
            else:
                self._pauses.pop(topic_id, None)
                self._conflicts.pop(topic_id, None)
            self._outage.answered(operation)
            failures = 0
        return True

    async def _sync_topic(self, entries: Entries, topic_id: TopicId) -> None:
        """Make a topic's entry name the state's metadata. Raises `CatalogFailed`, `NotOurs`, `LedgerUnavailable`."""
        topic = self._ledger.state.topics.get(topic_id)
        if topic is None:
            return
        name, known = topic.name, self._known.get(topic_id)
        if known is None or not entries.is_compared or self._is_old(topic):
            # A call that failed may have been carried out, so the entry is read before it is changed again.
            old_location = await self._call(entries.find, name)
            checked_s = self._clock.monotonic_s()
            # The barrier comes after the read: the state then is at least as new as the entry. So an entry never moves
            # back, except after a recovery of the ledger (ADR 14).
            if topic.table is None or old_location != f"{self._root}/{topic.table.metadata_key}":
                await self._ledger.barrier()
        else:
            old_location, checked_s = f"{self._root}/{known.metadata_key}", known.checked_s
        topic = self._ledger.state.topics.get(topic_id)
        if topic is None or topic.table is None or not self._may_write(topic_id):
            self._known.pop(topic_id, None)
            return
        table = topic.table
        entry = _KnownEntry(metadata_key=table.metadata_key, version=table.version, checked_s=checked_s)
        location = f"{self._root}/{table.metadata_key}"
        if old_location != location:
            if old_location is None:
                is_updated = await self._call(entries.create, name, location)
            elif self._topic_of(old_location, name) is not None:
                is_updated = await self._call(entries.move, name, old_location, location)
            else:
                entry_name = ".".join((*self._settings.namespace, name))
                # Metadata of another writer: overwriting the entry could lose that writer's table.
                self._known.pop(topic_id, None)
                raise NotOurs(
                    f"entry {entry_name} names {old_location or 'no table'}, which no agent wrote. Drop or rename the "
                    "entry without purging files, or configure another namespace for this catalog"
                )
            if not is_updated:
                self._known.pop(topic_id, None)  # another client changed the entry meanwhile: read it again
                return
            self._updates.inc()
        self._known[topic_id] = entry

    async def _sweep(self, entries: Entries) -> bool:
        """Drop the entries of deleted topics, and no others. False where an entry could not be read.

        Raises `CatalogFailed`, `LedgerUnavailable`.
        """
        failures = 0
        for name in await self._call(entries.names):
            state = self._ledger.state
            topic_id = state.topic_ids.get(name)
            has_table = topic_id is not None and state.topics[topic_id].table is not None
            if has_table or owner_of(b"catalog/" + name.encode(), state.sessions) != self._ledger.session:
                continue
            try:
                await self._drop_if_gone(entries, name)
            except CatalogFailed as error:  # perhaps the broken table of another writer: it stops no other entry
                failures += 1
                log.info(
                    "could not read a catalog entry that may be a deleted topic's; it is read again later",
                    extra={"catalog": self._settings.name, "topic": name, "reason": str(error)},
                )
                if failures >= EXTERNAL_CATALOG_FAILURES_IN_A_ROW_MAX:
                    self._is_suspect = True
                    break
        return not failures

    async def _drop_if_gone(self, entries: Entries, name: str) -> None:
        location = await self._call(entries.find, name)
        topic_id = None if location is None else self._topic_of(location, name)
        if location is None or topic_id is None:
            return  # no metadata of this cluster: the entry belongs to another writer and stays
        await self._ledger.barrier()  # a topic that is unknown here may be new (safety rule S4)
        if topic_id in self._ledger.state.topics or not self._ledger.is_confirmed:
            return
        if await self._call(entries.drop, name, location):
            log.info(
                "dropped the entry of a deleted topic from an external catalog",
                extra={"catalog": self._settings.name, "topic": name},
            )

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a call of the catalog's client. Raises `CatalogFailed`."""
        try:
            async with self._clock.timeout(EXTERNAL_CATALOG_CALL_SECONDS_MAX):
                return await self._thread.run(without_leaks, self._settings.secrets, lambda: function(*args, **kwargs))
        except TimeoutError:
            self._failures.inc()
            raise CatalogFailed(f"no answer within {EXTERNAL_CATALOG_CALL_SECONDS_MAX:.0f} s") from None
        except CatalogFailed:
            self._failures.inc()
            raise

    def _failed(self, operation: str, reason: str) -> None:
        self._outage.failed(operation, reason)
        self._last_error, self._failed_s = f"{operation}: {reason}", self._clock.monotonic_s()

    def _due(self) -> list[TopicId]:
        """Topics of this agent whose entries are out of date, or were last checked long ago; none that is paused."""
        state, now_s = self._ledger.state, self._clock.monotonic_s()
        if self._seen_topics - state.topics.keys():
            self._sweep_s = None
        if self._seen_topics != state.topics.keys():
            self._seen_topics = set(state.topics)
            self._is_selected = {
                topic.topic_id: self._settings.topics.fullmatch(topic.name) is not None
                for topic in state.topics.values()
            }
        if (members := frozenset(staying(state.sessions))) != self._members:
            self._members, self._foreign = members, set()
        candidates = [
            topic.topic_id
            for topic in state.topics.values()
            if topic.topic_id not in self._foreign
            and self._is_selected[topic.topic_id]
            and (self._is_ahead(topic) or self._is_old(topic))
        ]
        owners = owners_of(candidates, state.sessions)
        owned = {topic_id for topic_id, owner in zip(candidates, owners, strict=True) if owner == self._ledger.session}
        self._foreign = (self._foreign | (set(candidates) - owned)) & state.topics.keys()
        deleted = (self._known.keys() | self._pauses.keys() | self._conflicts.keys()) - state.topics.keys()
        for topic_id in deleted | self._foreign:
            # Another agent writes these entries now, so what is known here may be out of date.
            self._known.pop(topic_id, None)
            self._pauses.pop(topic_id, None)
            self._conflicts.pop(topic_id, None)
        self._behind_s = {
            topic_id: self._behind_s.get(topic_id, now_s)
            for topic_id in owned
            if self._is_ahead(state.topics[topic_id])
        }
        return [topic_id for topic_id in candidates if topic_id in owned and now_s >= self._pause_of(topic_id).until_s]

    def _is_ahead(self, topic: TopicState) -> bool:
        """Whether the entry does not name the newest metadata of the topic's table, as far as is known."""
        known = self._known.get(topic.topic_id)
        return topic.table is not None and (known is None or known.metadata_key != topic.table.metadata_key)

    def _is_old(self, topic: TopicState) -> bool:
        known = self._known.get(topic.topic_id)
        return known is not None and self._clock.monotonic_s() >= known.checked_s + EXTERNAL_CATALOG_RECHECK_INTERVAL_S

    def _may_write(self, topic_id: TopicId) -> bool:
        """Whether this agent still owns the topic: then no other agent updates its entry."""
        is_owner = owner_of(topic_id, self._ledger.state.sessions) == self._ledger.session
        return is_owner and self._ledger.is_confirmed

    def _topic_of(self, location: str, name: str) -> TopicId | None:
        """The topic `name` whose metadata in this bucket is at a location; None for any other location."""
        key = location.removeprefix(f"{self._root}/")
        return None if key == location else topic_of_metadata_key(key, name)

    def _pause_of(self, topic_id: TopicId) -> _CatalogBackoff:
        return self._pauses.get(topic_id) or _CatalogBackoff()

    def _postpone(self, topic_id: TopicId) -> None:
        self._known.pop(topic_id, None)
        self._pauses.setdefault(topic_id, _CatalogBackoff()).begin(self._clock.monotonic_s())

    def _report(self) -> None:
        """Set the metrics of this agent's topics."""
        lag_s, commits = self._behind()
        self._lag.set(lag_s)
        self._commits_behind.set(commits)
        self._conflict_count.set(len(self._conflicts))

    def _behind(self) -> tuple[float, int]:
        """The longest time for which an entry has been out of date, and the commits that all of them lack."""
        state, now_s = self._ledger.state, self._clock.monotonic_s()
        behind = [
            (topic, since_s)
            for topic_id, since_s in self._behind_s.items()
            if (topic := state.topics.get(topic_id)) is not None and self._is_ahead(topic)
        ]
        lag_s = max((now_s - since_s for _, since_s in behind), default=0.0)
        return lag_s, sum(self._commits(topic) for topic, _ in behind)

    def _commits(self, topic: TopicState) -> int:
        """The commits that an entry lacks; 1 where its version is unknown."""
        known = self._known.get(topic.topic_id)
        return 1 if known is None or topic.table is None else max(1, topic.table.version - known.version)
