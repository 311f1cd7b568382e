"""Has catalogs of others name the metadata of topics' tables that the ledger names.

Rule: the ledger decides; an entry is a copy of its pointer. What is found in a catalog is no newer than the state
after a barrier that came later, so an entry moves only from what was seen there to what the state says then: never
back, but where a recovery went back. An entry that names anything but metadata of this bucket under the topic's own
name is somebody else's and stays as it is. A call that failed may have been carried out: the entry is looked at before
the next one. The agent that rendezvous hashing names for a topic, or for the name of one that is gone, does it.

Why a catalog without a comparing step lags or flickers at times: docs/adr/0014-external-catalogs.md.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

from agent.config.addresses import S3Url, read_store_url, store_root
from agent.config.external_catalog_settings import ExternalCatalogSettings
from agent.config.settings import Settings
from agent.lake.file_io import s3_file_io
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.outages import Outage, OutageWords
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
"""The name in the log of the operation that does not concern one topic."""
Opener = Callable[[ExternalCatalogSettings, str], Entries]


class NotOurs(Exception):
    """An entry under a topic's name names metadata that no agent of this cluster wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownEntry:
    """An entry as it was seen, or made, last: it names the metadata of that version of a table."""

    metadata_key: str
    version: int
    looked_s: float


@dataclass(slots=True, kw_only=True)
class _CatalogBackoff:
    """The pause after a failure: until when, and how long the next one is."""

    until_s: float = 0.0
    next_s: float = EXTERNAL_CATALOG_BACKOFF_SECONDS_FIRST

    def begin(self, now_s: float) -> None:
        self.until_s = now_s + self.next_s
        self.next_s = min(2 * self.next_s, EXTERNAL_CATALOG_BACKOFF_SECONDS_MAX)


def open_with_pyiceberg(settings: ExternalCatalogSettings, root: str) -> Entries:
    """The entries of a follower. Blocks; raises whatever its client does."""
    return open_entries(
        catalog_name=settings.name, properties=settings.properties, namespace=settings.namespace, root=root
    )


def external_catalog_syncs(
    settings: Settings, *, metadata: ApplyLoop, writer: LedgerWriter, clock: Clock, metrics: Metrics
) -> Mapping[str, "ExternalCatalogSync"]:
    """The followers of an agent with these settings, by the names of the tasks that they are to run in."""
    root = store_root(read_store_url(settings.store_url))
    file_io = bucket_properties(settings) if settings.external_catalogs else {}
    catalog_syncs: dict[str, ExternalCatalogSync] = {}
    for one in settings.external_catalogs:
        catalog_syncs[f"catalog {one.name}"] = ExternalCatalogSync(
            settings=replace(one, properties={**file_io, **one.properties}),
            root=root,
            metadata=metadata,
            writer=writer,
            clock=clock,
            metrics=metrics,
        )
    return catalog_syncs


def bucket_properties(settings: Settings) -> Mapping[str, str]:
    """By which PyIceberg finds the bucket, unless the file of followers says otherwise: as the agent does."""
    if not isinstance(read_store_url(settings.store_url), S3Url):
        return {}
    properties = s3_file_io(S3Settings.from_environment(settings.store_url, os.environ), None)
    return {name: value for name, value in properties.items() if name.startswith("s3.")}


class ExternalCatalogSync:
    """Keeps one external catalog in step. Every agent has one for each in its settings. `root` is the bucket's URI."""

    def __init__(
        self,
        *,
        settings: ExternalCatalogSettings,
        root: str,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        clock: Clock,
        metrics: Metrics,
        opener: Opener = open_with_pyiceberg,
    ) -> None:
        self._settings = settings
        self._root = root
        self._metadata = metadata
        self._writer = writer
        self._clock = clock
        self._opener = opener
        self._thread = PatientThread(f"catalog-{settings.name}")
        self._entries: Entries | None = None
        self._known: dict[TopicId, _KnownEntry] = {}
        self._behind_s: dict[TopicId, float] = {}
        """Topics of this agent whose entries are not what the state says, and since when that was seen."""
        self._is_suspect = False
        """Whether so much failed that the catalog may be away."""
        self._pause = _CatalogBackoff()
        self._pauses: dict[TopicId, _CatalogBackoff] = {}
        self._refused: dict[TopicId, str] = {}
        """Why entries are not touched."""
        self._last_error: str | None = None
        self._failed_s = 0.0
        """When that was."""
        self._wanted: dict[TopicId, bool] = {}
        """Whether a topic's name is one of those that follow."""
        self._seen_topics: set[TopicId] = set()
        self._members: frozenset[SessionId] = frozenset()
        self._not_mine: set[TopicId] = set()
        """Topics of other agents while `_members` are those who may be asked."""
        self._sweep_s: float | None = None
        """When entries without topics are to be looked for; None: now."""
        words = OutageWords(
            fails=f"the catalog {settings.name} does not follow: it is asked again until it does, and goes straight to "
            'the newest tables then. Look at the reason; docs/operations/external-catalogs.md, "A catalog does not '
            'follow"',
            answers=f"the catalog {settings.name} follows again",
        )
        self._outage = Outage(words, monotonic_s=clock.monotonic_s)
        self._lag = metrics.external_catalog_lag_seconds.labels(settings.name)
        self._commits_behind = metrics.external_catalog_commit_lag.labels(settings.name)
        self._tables_refused = metrics.external_catalog_conflicts.labels(settings.name)
        self._failures = metrics.external_catalog_errors.labels(settings.name)
        self._moves = metrics.external_catalog_updates.labels(settings.name)

    async def run(self) -> None:
        """Follow, for ever."""
        while True:
            await self._clock.sleep(EXTERNAL_CATALOG_CHECK_INTERVAL_S)
            await self.look()

    async def close(self) -> None:
        """Let go of connections; for who stops without ending the process."""
        if self._entries is not None:
            await self._thread.run(self._entries.close)

    async def look(self) -> None:
        """Have entries follow that do not, unless the catalog is left alone for a while. Raises `LedgerUnavailable`."""
        due = self._due()
        try:
            if self._clock.monotonic_s() >= self._pause.until_s:
                await self._work(due)
        finally:
            self._report()

    def view(self) -> Mapping[str, object]:
        """How it stands with this agent's topics, as of the last look. `last_error` stays when it is over."""
        ago_s = None if self._last_error is None else round(self._clock.monotonic_s() - self._failed_s, 1)
        lag_s, commits = self._behind()
        return {
            "catalog": self._settings.name,
            "type": self._settings.properties["type"],
            "namespace": ".".join(self._settings.namespace),
            "tables": len(self._known),
            "conflicts": len(self._refused),
            "commit_lag": commits,
            "lag_s": round(lag_s, 1),
            "last_error": self._last_error,
            "last_error_s_ago": ago_s,
        }

    async def _work(self, due: list[TopicId]) -> None:
        is_sweep_due = self._sweep_s is None or self._clock.monotonic_s() >= self._sweep_s
        if not due and not is_sweep_due:
            return
        try:
            entries = await self._reached()
            if self._pause.until_s > 0:
                self._pause = _CatalogBackoff()
                self._pauses.clear()
                due = self._due()
            if await self._follow_all(entries, due) and is_sweep_due:
                is_done = await self._sweep(entries)
                again_s = EXTERNAL_CATALOG_RECHECK_INTERVAL_S if is_done else EXTERNAL_CATALOG_BACKOFF_SECONDS_MAX
                self._sweep_s = self._clock.monotonic_s() + again_s
            self._outage.answered(LIST)
        except CatalogFailed as error:
            self._failed(LIST, str(error))
            self._is_suspect = True
            self._pause.begin(self._clock.monotonic_s())

    async def _reached(self) -> Entries:
        """The catalog, which answered just now if there was doubt that it would. Raises `CatalogFailed`."""
        if self._entries is None:
            self._entries = await self._ask(self._opener, self._settings, self._root)
        elif self._is_suspect:
            await self._ask(self._entries.names)
        self._is_suspect = False
        return self._entries

    async def _follow_all(self, entries: Entries, due: list[TopicId]) -> bool:
        """False where so many failed in a row that it may be the catalog, which is asked for less, then."""
        failures = 0
        for topic_id in sorted(due, key=lambda one: (one in self._pauses, one not in self._behind_s)):
            topic = self._metadata.state.topics.get(topic_id)
            operation = topic_id.hex() if topic is None else topic.name
            try:
                await self._follow(entries, topic_id)
            except CatalogFailed as error:
                self._failed(operation, str(error))
                self._put_off(topic_id)
                failures += 1
                if failures >= EXTERNAL_CATALOG_FAILURES_IN_A_ROW_MAX:
                    self._is_suspect = True
                    return False
                continue
            except NotOurs as error:
                self._put_off(topic_id)
                self._last_error, self._failed_s = f"{operation}: {error}", self._clock.monotonic_s()
                if self._refused.get(topic_id) != str(error):
                    self._refused[topic_id] = str(error)
                    log.error(
                        "a table is not followed: %s", error, extra={"catalog": self._settings.name, "topic": operation}
                    )
            else:
                self._pauses.pop(topic_id, None)
                self._refused.pop(topic_id, None)
            self._outage.answered(operation)
            failures = 0
        return True

    async def _follow(self, entries: Entries, topic_id: TopicId) -> None:
        """Have a topic's entry say what the state says. Raises `CatalogFailed`, `NotOurs`, `LedgerUnavailable`."""
        topic = self._metadata.state.topics.get(topic_id)
        if topic is None:
            return
        name, known = topic.name, self._known.get(topic_id)
        if known is None or not entries.is_compared or self._is_old(topic):
            found = await self._ask(entries.find, name)
            looked_s = self._clock.monotonic_s()
            if topic.table is None or found != f"{self._root}/{topic.table.metadata_key}":
                await self._metadata.barrier()
        else:
            found, looked_s = f"{self._root}/{known.metadata_key}", known.looked_s
        topic = self._metadata.state.topics.get(topic_id)
        if topic is None or topic.table is None or not self._may_write(topic_id):
            self._known.pop(topic_id, None)
            return
        table = topic.table
        wanted = _KnownEntry(metadata_key=table.metadata_key, version=table.version, looked_s=looked_s)
        location = f"{self._root}/{table.metadata_key}"
        if found != location:
            if found is None:
                is_done = await self._ask(entries.create, name, location)
            elif self._topic_of(found, name) is not None:
                is_done = await self._ask(entries.move, name, found, location)
            else:
                self._known.pop(topic_id, None)
                raise NotOurs(
                    f"its entry in {'.'.join((*self._settings.namespace, name))} names {found or 'no table'}, which no "
                    "agent wrote. Drop or rename the entry, without purging files, and the table follows; or have "
                    "topics follow into another namespace"
                )
            if not is_done:
                self._known.pop(topic_id, None)  # somebody else was there: look again
                return
            self._moves.inc()
        self._known[topic_id] = wanted

    async def _sweep(self, entries: Entries) -> bool:
        """Drop entries of topics that were deleted, and of nobody else; False where some of them could not be read.

        Raises `CatalogFailed`, `LedgerUnavailable`.
        """
        failures = 0
        for name in await self._ask(entries.names):
            state = self._metadata.state
            topic_id = state.topic_ids.get(name)
            is_followed = topic_id is not None and state.topics[topic_id].table is not None
            if is_followed or owner_of(b"catalog/" + name.encode(), state.sessions) != self._writer.session:
                continue
            try:
                await self._drop_if_gone(entries, name)
            except CatalogFailed as error:  # of a table of others, perhaps, that is broken
                failures += 1
                log.info(
                    "an entry that may be a deleted topic's is looked at later",
                    extra={"catalog": self._settings.name, "topic": name, "reason": str(error)},
                )
                if failures >= EXTERNAL_CATALOG_FAILURES_IN_A_ROW_MAX:
                    self._is_suspect = True
                    break
        return not failures

    async def _drop_if_gone(self, entries: Entries, name: str) -> None:
        found = await self._ask(entries.find, name)
        topic_id = None if found is None else self._topic_of(found, name)
        if found is None or topic_id is None:
            return
        await self._metadata.barrier()
        if topic_id in self._metadata.state.topics or not self._writer.is_confirmed:
            return
        if await self._ask(entries.drop, name, found):
            log.info(
                "the entry of a deleted topic left a catalog", extra={"catalog": self._settings.name, "topic": name}
            )

    async def _ask(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
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
        """Topics of this agent whose entries are not right, or have not been looked at for long."""
        state, now_s = self._metadata.state, self._clock.monotonic_s()
        if self._seen_topics - state.topics.keys():
            self._sweep_s = None
        if self._seen_topics != state.topics.keys():
            self._seen_topics = set(state.topics)
            self._wanted = {
                topic.topic_id: self._settings.topics.fullmatch(topic.name) is not None
                for topic in state.topics.values()
            }
        if (members := frozenset(staying(state.sessions))) != self._members:
            self._members, self._not_mine = members, set()
        asked_of = [
            topic.topic_id
            for topic in state.topics.values()
            if topic.topic_id not in self._not_mine
            and self._wanted[topic.topic_id]
            and (self._is_ahead(topic) or self._is_old(topic))
        ]
        owners = owners_of(asked_of, state.sessions)
        mine = {topic_id for topic_id, owner in zip(asked_of, owners, strict=True) if owner == self._writer.session}
        self._not_mine = (self._not_mine | (set(asked_of) - mine)) & state.topics.keys()
        gone = (self._known.keys() | self._pauses.keys() | self._refused.keys()) - state.topics.keys()
        for topic_id in gone | self._not_mine:
            # Whoever is the owner now writes what comes next: nothing that is known here holds any longer.
            self._known.pop(topic_id, None)
            self._pauses.pop(topic_id, None)
            self._refused.pop(topic_id, None)
        self._behind_s = {
            topic_id: self._behind_s.get(topic_id, now_s) for topic_id in mine if self._is_ahead(state.topics[topic_id])
        }
        return [topic_id for topic_id in asked_of if topic_id in mine and now_s >= self._pause_of(topic_id).until_s]

    def _is_ahead(self, topic: TopicState) -> bool:
        """Whether the state says something newer of a topic's table than its entry, as far as that is known."""
        known = self._known.get(topic.topic_id)
        return topic.table is not None and (known is None or known.metadata_key != topic.table.metadata_key)

    def _is_old(self, topic: TopicState) -> bool:
        known = self._known.get(topic.topic_id)
        return known is not None and self._clock.monotonic_s() >= known.looked_s + EXTERNAL_CATALOG_RECHECK_INTERVAL_S

    def _may_write(self, topic_id: TopicId) -> bool:
        """Whether this agent is the topic's owner still; nobody else knows more, then."""
        is_owner = owner_of(topic_id, self._metadata.state.sessions) == self._writer.session
        return is_owner and self._writer.is_confirmed

    def _topic_of(self, location: str, name: str) -> TopicId | None:
        """The topic, of that name, whose metadata in this bucket a location names; None where it names none."""
        key = location.removeprefix(f"{self._root}/")
        return None if key == location else topic_of_metadata_key(key, name)

    def _pause_of(self, topic_id: TopicId) -> _CatalogBackoff:
        return self._pauses.get(topic_id) or _CatalogBackoff()

    def _put_off(self, topic_id: TopicId) -> None:
        self._known.pop(topic_id, None)
        self._pauses.setdefault(topic_id, _CatalogBackoff()).begin(self._clock.monotonic_s())

    def _report(self) -> None:
        """The figures of this agent's topics."""
        lag_s, commits = self._behind()
        self._lag.set(lag_s)
        self._commits_behind.set(commits)
        self._tables_refused.set(len(self._refused))

    def _behind(self) -> tuple[float, int]:
        """For how long the entry that is behind for longest has been, and how many commits all of them are behind."""
        state, now_s = self._metadata.state, self._clock.monotonic_s()
        behind = [
            (topic, since_s)
            for topic_id, since_s in self._behind_s.items()
            if (topic := state.topics.get(topic_id)) is not None and self._is_ahead(topic)
        ]
        lag_s = max((now_s - since_s for _, since_s in behind), default=0.0)
        return lag_s, sum(self._commits(topic) for topic, _ in behind)

    def _commits(self, topic: TopicState) -> int:
        """How many commits an entry is behind; 1 where it is not known which one it names."""
        known = self._known.get(topic.topic_id)
        return 1 if known is None or topic.table is None else max(1, topic.table.version - known.version)
