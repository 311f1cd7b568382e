"""A bucket in a folder and a real SQL catalog in SQLite beside it, with trouble in between."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from agent.config.external_catalog_settings import ExternalCatalogSettings
from agent.lake.external_catalogs import ExternalCatalogSync, Opener, open_with_pyiceberg
from coordinator.commands.commands import Done
from iceberg_export.external_catalogs.entries import Entries
from iceberg_export.external_catalogs.general_entries import GeneralEntries
from iceberg_export.tables.metadata import empty_metadata, encode, table_location
from protocol.types import TopicId
from tests.support.agent.ledger_parts import Parts
from tests.support.commands.commands import TOPIC
from tests.support.commands.table_commits import commit_table, metadata_key, table_commit


@dataclass(slots=True)
class Trouble:
    """Stands before the entries of a catalog, counts what is asked, and fails as it is told."""

    entries: Entries
    is_compared: bool
    is_away: bool = False
    loses: set[str] = field(default_factory=set[str])
    """Operations that are carried out, and whose answer is lost once."""
    refuses: set[str] = field(default_factory=set[str])
    """Names of tables that the catalog does not take, or cannot read."""
    before_move: Callable[[], None] | None = None
    asked: list[str] = field(default_factory=list[str])

    def names(self) -> list[str]:
        with self._asked("names"):
            return self.entries.names()

    def find(self, name: str) -> str | None:
        with self._asked("find"):
            if name in self.refuses and self.entries.find(name) is not None:
                raise ValueError(f"{name} cannot be read")
            return self.entries.find(name)

    def create(self, name: str, location: str) -> bool:
        with self._asked("create"):
            if name in self.refuses:
                raise ValueError(f"{name} is no name of a table")
            return self.entries.create(name, location)

    def move(self, name: str, expected: str, location: str) -> bool:
        with self._asked("move"):
            if self.before_move is not None:
                before, self.before_move = self.before_move, None
                before()
            return self.entries.move(name, expected, location)

    def drop(self, name: str, expected: str) -> bool:
        with self._asked("drop"):
            return self.entries.drop(name, expected)

    def close(self) -> None:
        self.entries.close()

    @contextmanager
    def _asked(self, operation: str) -> Iterator[None]:
        self.asked.append(operation)
        if self.is_away:
            raise ConnectionRefusedError("nobody is there")
        yield
        if operation in self.loses:
            self.loses.remove(operation)
            raise ConnectionResetError("the connection ended before the answer")


class Place:
    """A bucket in a folder and a catalog in SQLite beside it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self.bucket = folder / "bucket"
        self.root = f"file://{self.bucket}"
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.sqlite"}
        self.reader = SqlCatalog("others", **self.properties)
        self.settings = ExternalCatalogSettings(name="others", properties=self.properties)
        self.troubles: list[Trouble] = []

    def opener(self) -> Opener:
        def opened(settings: ExternalCatalogSettings, root: str) -> Entries:
            entries = open_with_pyiceberg(settings, root)
            if self.kind == "general":
                entries.close()
                catalog = SqlCatalog("others", **self.properties)
                entries = GeneralEntries(catalog, settings.namespace, root=root, can_overwrite=False)
            self.troubles.append(Trouble(entries, entries.is_compared))
            return self.troubles[-1]

        return opened

    def sync(self, parts: Parts, opener: Opener | None = None) -> ExternalCatalogSync:
        return ExternalCatalogSync(
            settings=self.settings,
            root=self.root,
            ledger=parts.ledger,
            clock=parts.clock,
            metrics=parts.metrics,
            opener=opener or self.opener(),
        )

    @property
    def trouble(self) -> Trouble:
        return self.troubles[-1]

    def entry(self, name: str = "t") -> str | None:
        """What a reader of the catalog finds; it reads the metadata, too."""
        try:
            return self.reader.load_table(("lake", name)).metadata_location
        except NoSuchTableError:
            return None

    def write_metadata(self, key: str, *, name: str = "t", topic_id: TopicId = TOPIC) -> str:
        path = self.bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        location = table_location(self.root, name, topic_id)
        path.write_bytes(encode(empty_metadata(name=name, topic_id=topic_id, location=location, created_ms=1)))
        return f"{self.root}/{key}"

    async def commit(self, parts: Parts, *, name: str = "t", topic_id: TopicId = TOPIC) -> str:
        """The next commit of a topic's table; returns where its metadata is."""
        table = parts.ledger.state.topics[topic_id].table
        version, before = (1, "") if table is None else (table.version + 1, table.metadata_key)
        session = parts.ledger.session
        location = self.write_metadata(
            metadata_key(version, session=session, name=name, topic_id=topic_id), name=name, topic_id=topic_id
        )
        commit = table_commit(
            version,
            replaces=before,
            released=(before,) if before else (),
            session=session,
            name=name,
            topic_id=topic_id,
        )
        assert await parts.ledger.propose(commit_table(commit, session=session, topic_id=topic_id)) == Done()
        return location

    def close(self) -> None:
        self.reader.close()
        for trouble in self.troubles:
            trouble.close()
