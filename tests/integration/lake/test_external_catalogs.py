"""A catalog of others follows the topics of a real agent, which is killed meanwhile."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from tests.support.lake.archiving import archive_by_http
from tests.support.services.local_services import PENSTOCK, Penstock, PenstockFactory
from tests.support.services.postgres import Postgres

SECONDS_MAX = 60.0
TABLE = ("raw", "kafka", "orders.eu")


def produce(broker: Penstock, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(first, end):
        producer.produce(TABLE[-1], b"v%d" % number)
    assert producer.flush(SECONDS_MAX) == 0


def values(catalog: SqlCatalog) -> list[bytes] | None:
    """What a reader of the catalog finds in order of offsets; None where the catalog has no such table."""
    try:
        table = catalog.load_table(TABLE)
    except NoSuchTableError:
        return None
    rows = table.scan(selected_fields=("offset", "value")).to_arrow().sort_by("offset")
    return [bytes(value) for value in rows.column("value").to_pylist()]


def wait_for(broker: Penstock, catalog: SqlCatalog, expected: list[bytes] | None) -> None:
    broker.process.wait_until(lambda: values(catalog) == expected, "the catalog", seconds_max=SECONDS_MAX)


def lake_status(broker: Penstock) -> list[list[str]]:
    """The lines that the command prints."""
    done = subprocess.run(
        [PENSTOCK, "lake", "status", "--server", broker.http],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS_MAX,
    )
    return [line.split() for line in done.stdout.splitlines()]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog("others", uri=f"sqlite:///{tmp_path}/catalog.sqlite")
    yield catalog
    catalog.close()


def test_a_catalog_follows_an_agent_over_its_death(
    penstock: PenstockFactory, catalog: SqlCatalog, tmp_path: Path
) -> None:
    catalogs = tmp_path / "external-catalogs.toml"
    catalogs.write_text('[others]\ntype = "sql"\nnamespace = "raw.kafka"\nuri = { env = "CATALOG_URI" }\n')
    environment = {"CATALOG_URI": f"sqlite:///{tmp_path}/catalog.sqlite"}
    options = {"archive-interval-s": "1", "external-catalogs": str(catalogs)}
    broker = penstock(options=options, env=environment)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TABLE[-1], 1, 1)])[TABLE[-1]].result(SECONDS_MAX)
    produce(broker, 0, 50)
    wait_for(broker, catalog, [b"v%d" % number for number in range(50)])
    assert ["others", "sql", "raw.kafka", "1", "0", "0", "0.0", "-", "-"] in lake_status(broker)
    broker.process.kill()

    broker = penstock(data=broker.data, options=options, env=environment, start_seconds_max=SECONDS_MAX)
    produce(broker, 50, 70)
    wait_for(broker, catalog, [b"v%d" % number for number in range(70)])
    assert environment["CATALOG_URI"] not in broker.process.stderr

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([TABLE[-1]])[TABLE[-1]].result(SECONDS_MAX)
    wait_for(broker, catalog, None)


@pytest.mark.slow
def test_a_catalog_in_postgresql_follows_over_its_own_death(
    penstock: PenstockFactory, postgres: Postgres, tmp_path: Path
) -> None:
    catalogs = tmp_path / "external-catalogs.toml"
    catalogs.write_text('[others]\ntype = "sql"\nnamespace = "raw.kafka"\nuri = { env = "CATALOG_URI" }\n')
    options = {"archive-interval-s": "1", "external-catalogs": str(catalogs)}
    broker = penstock(options=options, env={"CATALOG_URI": postgres.uri})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TABLE[-1], 1, 1)])[TABLE[-1]].result(SECONDS_MAX)
    produce(broker, 0, 50)
    with closing(SqlCatalog("others", uri=postgres.uri, pool_pre_ping="true")) as catalog:
        wait_for(broker, catalog, [b"v%d" % number for number in range(50)])

        postgres.stop()
        for end in range(60, 110, 10):
            produce(broker, end - 10, end)
            archive_by_http(broker, TABLE[-1])
        broker.process.wait_until(lambda: "is not updated" in broker.process.stderr, "the failure", seconds_max=30)
        postgres.start()
        wait_for(broker, catalog, [b"v%d" % number for number in range(100)])
        assert "is updated again" in broker.process.stderr
        assert "not-asked-for" not in broker.process.stderr

        admin.delete_topics([TABLE[-1]])[TABLE[-1]].result(SECONDS_MAX)
        wait_for(broker, catalog, None)
