"""The examples of docs/tables.md and docs/operations/external-catalogs.md that need no Spark, run as they stand there.

Left out are the commands that install packages: the packages of the tests are there instead.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from tests.support.documents import blocks
from tests.support.lake.archiving import archive_by_http
from tests.support.services.local_services import Penstock, PenstockFactory

DOCS = Path(__file__).resolve().parents[3] / "docs"
HTTP_ADDRESS = "127.0.0.1:9644"
CATALOG_FILE = "/srv/catalog.sqlite"
RECORDS_COUNT = 1_500
SECONDS_MAX = 60


def examples(page: str, heading: str, language: str) -> list[str]:
    """The blocks of one language in the section below a heading."""
    section = ("\n" + (DOCS / page).read_text(encoding="utf-8")).partition(f"\n{heading}\n")[2]
    level = heading.partition(" ")[0]
    return [block.text for block in blocks(section.partition(f"\n{level} ")[0]) if block.language == language]


def produce(broker: Penstock) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS_COUNT):
        producer.produce("orders", b"%d" % number, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def bash(script: str, folder: Path) -> str:
    return subprocess.run(
        ["bash", "-ec", script],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=SECONDS_MAX,
    ).stdout


def test_pyiceberg_polars_and_duckdb_read_a_table(penstock: PenstockFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else it warns that a plug-in of its own is missing
    broker = penstock()
    produce(broker)
    archive_by_http(broker, "orders")
    (code,) = examples("tables.md", "## Read with PyIceberg, Polars, DuckDB", "python")
    names: dict[str, Any] = {}
    exec(compile(code.replace(HTTP_ADDRESS, broker.http), "docs/tables.md", "exec"), names)
    assert names["orders"].scan(row_filter="partition = 0 and offset >= 1000").count() == RECORDS_COUNT - 1_000
    names["connection"].close()
    names["catalog"].close()


def test_a_token_opens_the_catalog(penstock: PenstockFactory, tmp_path: Path) -> None:
    (script,) = examples("tables.md", "## Access", "bash")
    create, start = script.strip().splitlines()
    assert start == "penstock run --http-token-file tokens"
    bash(create, tmp_path)
    broker = penstock(options={"http-token-file": str(tmp_path / "tokens")})
    check = 'curl -H "Authorization: Bearer $(head -1 tokens)" http://127.0.0.1:9644/iceberg/v1/config'
    assert check in " ".join((DOCS / "tables.md").read_text(encoding="utf-8").split())
    status = bash(check.replace(HTTP_ADDRESS, broker.http) + " -s -o answer -w '%{http_code}'", tmp_path)
    assert status == "200"


def test_a_sql_catalog_has_the_tables(penstock: PenstockFactory, tmp_path: Path) -> None:
    (script,) = examples("operations/external-catalogs.md", "# External catalogs", "bash")[:1]
    install, *lines, start = script.strip().splitlines()
    assert install.startswith("pip install ")
    assert start == "penstock run --external-catalogs catalogs.toml"
    file = str(tmp_path / "catalog.sqlite")
    bash("\n".join(lines).replace(CATALOG_FILE, file), tmp_path)
    broker = penstock(options={"external-catalogs": str(tmp_path / "catalogs.toml")})
    produce(broker)
    archive_by_http(broker, "orders")

    def is_registered() -> bool:
        try:
            SqlCatalog("others", uri=f"sqlite:///{file}").load_table("lake.orders")
        except NoSuchTableError:
            return False
        return True

    broker.process.wait_until(is_registered, "the entry in the catalog", seconds_max=SECONDS_MAX)
    (code,) = examples("operations/external-catalogs.md", "# External catalogs", "python")
    exec(compile(code.replace(CATALOG_FILE, file), "docs/operations/external-catalogs.md", "exec"), {})
