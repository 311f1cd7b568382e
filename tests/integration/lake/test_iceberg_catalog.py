"""PyIceberg, Polars and DuckDB read topics by the agent's own catalog, and change nothing by it."""

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import polars
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.table import Table

from tests.support.lake.archived_topics import LakeTopic, as_rows
from tests.support.lake.archiving import AT_ONCE
from tests.support.services.local_services import Minio, PenstockFactory

COLUMNS = ("partition", "offset", "key", "value")
TOKEN = "0123456789abcdef0123456789abcdef"

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
"""Of what these clients leave open, and of what they use of each other."""


@pytest.fixture(autouse=True)
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars plans by PyIceberg; its own planner is a package more."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture(params=["file", "s3"])
def topic(request: pytest.FixtureRequest, penstock: PenstockFactory, minio: Minio, tmp_path: Path) -> LakeTopic:
    """A broker on each kind of store; that on S3 wants a token."""
    token = ""
    if request.param == "file":
        broker = penstock(options=AT_ONCE)
    else:
        token = TOKEN
        (tmp_path / "tokens").write_text(f"{TOKEN}\n")
        bucket = minio.make_bucket("catalog")
        options = {**AT_ONCE, "http-token-file": str(tmp_path / "tokens")}
        broker = penstock(options=options, store=f"s3://{bucket}/a/prefix", env=minio.settings)
    topic = LakeTopic.create(broker, "orders.of-2026", token)
    topic.produce(100)
    return topic


@pytest.fixture
def catalog(topic: LakeTopic) -> Iterator[RestCatalog]:
    token = {"token": topic.token} if topic.token else {}
    catalog = RestCatalog("penstock", uri=topic.catalog, warehouse="anything", **token)
    yield catalog
    catalog.close()


def test_a_client_without_the_path_is_told_it(penstock: PenstockFactory) -> None:
    http = penstock().http
    for path, told in (
        ("", "the URI http://HOST:PORT/iceberg"),
        ("/iceberg/v1", "the catalog's URI ends with /iceberg"),
    ):
        with pytest.raises(RESTError, match=told):
            RestCatalog("penstock", uri=f"http://{http}{path}")


def rows_by_every_reader(table: Table) -> list[list[tuple[int, int, bytes | None, bytes | None]]]:
    """The table's rows by PyIceberg itself, by Polars and by DuckDB."""
    arrow = table.scan(selected_fields=COLUMNS).to_arrow()
    frame = polars.scan_iceberg(table, storage_options=dict(table.io.properties)).select(COLUMNS).collect()
    with table.scan().to_duckdb("topic") as connection:
        duck = connection.sql('SELECT "partition", "offset", "key", "value" FROM topic').fetchall()
    return [
        as_rows(column.to_pylist() for column in arrow.columns),
        as_rows(frame.get_column(name).to_list() for name in COLUMNS),
        as_rows(zip(*duck, strict=True)),
    ]


def test_what_was_produced_and_archived_is_read_and_not_changed(topic: LakeTopic, catalog: RestCatalog) -> None:
    assert_strangers_are_told(topic)
    assert_read(topic, catalog)
    assert_not_changed(topic, catalog)
    assert_named_and_described(topic, catalog)


def assert_read(topic: LakeTopic, catalog: RestCatalog) -> None:
    identifier = ("lake", topic.name)
    assert catalog.list_namespaces() == [("lake",)]
    assert catalog.list_tables("lake") == [identifier]
    assert catalog.table_exists(identifier)
    assert not catalog.table_exists("lake.none")
    before = catalog.load_table(identifier)
    assert before.scan().to_arrow().num_rows == 0

    topic.archive()
    table = catalog.load_table(identifier)
    assert table.metadata.table_uuid == before.metadata.table_uuid
    for rows in rows_by_every_reader(table):
        assert rows == topic.rows

    topic.produce(50)
    topic.archive()
    for rows in rows_by_every_reader(catalog.load_table(identifier)):
        assert rows == topic.rows
    assert len(table.scan().to_arrow()) == 300
    some = table.scan(row_filter="partition = 1 and offset >= 90", selected_fields=("offset",)).to_arrow()
    assert sorted(some["offset"].to_pylist()) == list(range(90, 100))


def assert_not_changed(topic: LakeTopic, catalog: RestCatalog) -> None:
    identifier = ("lake", topic.name)
    table = catalog.load_table(identifier)
    metadata = table.metadata_location
    refused: list[Callable[[], object]] = [
        lambda: table.append(table.scan().to_arrow()),
        lambda: table.overwrite(table.scan().to_arrow()),
        lambda: table.delete("offset < 10"),
        lambda: table.transaction().set_properties({"gc.enabled": "true"}).commit_transaction(),
        lambda: table.update_schema().delete_column("value").commit(),
        lambda: table.update_spec().add_identity("partition").commit(),
        lambda: table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit(),
        lambda: catalog.drop_table(identifier),
        lambda: catalog.purge_table(identifier),
        lambda: catalog.rename_table(identifier, "lake.mine"),
        lambda: catalog.create_table("lake.mine", table.schema()),
        lambda: catalog.register_table("lake.mine", metadata),
        lambda: catalog.create_namespace("mine"),
        lambda: catalog.drop_namespace("lake"),
        lambda: catalog.update_namespace_properties("lake", updates={"a": "b"}),
    ]
    # Who writes files first is stopped on S3 by the bucket: the keys that were handed out read.
    writing = "the catalog" if topic.broker.data.joinpath("store").exists() else "the bucket"
    assert [outcome(attempt) for attempt in refused] == [writing] * 3 + ["the catalog"] * (len(refused) - 3)
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(identifier, table.schema())
    with pytest.raises(NoSuchTableError):
        catalog.drop_table("lake.none")

    after = catalog.load_table(identifier)
    assert after.metadata_location == metadata
    assert as_rows(c.to_pylist() for c in after.scan(selected_fields=COLUMNS).to_arrow().columns) == topic.rows
    assert topic.consumed() == topic.rows


def assert_named_and_described(topic: LakeTopic, catalog: RestCatalog) -> None:
    table = catalog.load_table(("lake", topic.name))
    stale = catalog.load_table(("lake", topic.name))
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().create_tag(first, "first").commit()
    with table.transaction() as transaction:
        transaction.set_properties({"owner": "billing"})
    assert (table.properties["owner"], table.metadata.refs["first"].snapshot_id) == ("billing", first)
    topic.produce(10)
    topic.archive()
    table = catalog.load_table(("lake", topic.name))
    assert (table.properties["owner"], table.metadata.refs["first"].snapshot_id) == ("billing", first)
    assert len(table.scan(snapshot_id=first).to_arrow()) == 300
    with pytest.raises(CommitFailedException, match="the table is not the one that this commit was made for"):
        stale.manage_snapshots().create_tag(first, "first").commit()
    table.manage_snapshots().remove_tag("first").commit()
    assert "first" not in catalog.load_table(("lake", topic.name)).metadata.refs


def assert_strangers_are_told(topic: LakeTopic) -> None:
    if topic.broker.data.joinpath("store").exists():
        with pytest.raises(OAuthError, match="the catalog issues no tokens"):
            RestCatalog("penstock", uri=topic.catalog, credential="a:b")
        return
    for properties in ({}, {"token": "wrong"}):
        with pytest.raises(UnauthorizedError, match="--http-token-file"):
            RestCatalog("penstock", uri=topic.catalog, **properties)


def outcome(attempt: Callable[[], object]) -> str:
    """What came of it: who refused it."""
    try:
        with warnings.catch_warnings(action="ignore"):
            attempt()
    except ForbiddenError:
        return "the catalog"
    except OSError as error:
        return "the bucket" if re.search("ACCESS_DENIED|403", str(error)) else str(error)
    return "nobody"
