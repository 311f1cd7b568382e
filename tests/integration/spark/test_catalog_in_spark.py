"""Spark reads topics by the agent's catalog, and whatever it tries to change is refused or harms nothing."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.lake.archived_topics import LakeTopic, Row, as_rows
from tests.support.lake.archiving import AT_ONCE
from tests.support.services.local_services import Minio, PenstockFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOKEN = "0123456789abcdef0123456789abcdef"

ATTEMPTS = (
    "INSERT INTO {table} VALUES (0, 0L, current_timestamp(), 0, null, null, array())",
    "INSERT OVERWRITE {table} SELECT * FROM {table} WHERE offset < 10",
    "DELETE FROM {table}",
    "DELETE FROM {table} WHERE offset < 10",
    "TRUNCATE TABLE {table}",
    "ALTER TABLE {table} ADD COLUMN mine int",
    "ALTER TABLE {table} DROP COLUMN value",
    "ALTER TABLE {table} RENAME COLUMN value TO mine",
    "ALTER TABLE {table} SET TBLPROPERTIES ('gc.enabled' = 'true')",
    "ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')",
    "ALTER TABLE {table} SET LOCATION '{elsewhere}'",
    "ALTER TABLE {table} RENAME TO {catalog}.lake.mine",
    "DROP TABLE {table}",
    "DROP TABLE {table} PURGE",
    "CREATE TABLE {catalog}.lake.mine (a int) USING iceberg",
    "CREATE TABLE {catalog}.lake.mine USING iceberg AS SELECT * FROM {table}",
    "CREATE OR REPLACE TABLE {table} (a int) USING iceberg",
    "CREATE NAMESPACE {catalog}.mine",
    "DROP NAMESPACE {catalog}.lake CASCADE",
    "CALL {catalog}.system.expire_snapshots(table => '{name}', older_than => timestamp '2100-01-01 00:00:00')",
    "CALL {catalog}.system.remove_orphan_files(table => '{name}')",
    "CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
    "CALL {catalog}.system.rewrite_manifests('{name}')",
    "CALL {catalog}.system.rollback_to_snapshot('{name}', {snapshot})",
    "CALL {catalog}.system.set_current_snapshot('{name}', {snapshot})",
    "CALL {catalog}.system.register_table('lake.mine', '{metadata}')",
)
"""Statements of which each would lose or change rows, if it were done."""
REFUSED = re.compile("Forbidden: |GC is disabled")
"""By the catalog, or by Iceberg, since the tables say so."""


def open_catalog(spark: "SparkSession", topic: LakeTopic, token: str = "") -> tuple[str, str]:
    """Name of a catalog of this session's for the topic's broker, and of its table in it."""
    name = f"penstock_{topic.broker.http.rpartition(':')[2]}"
    properties = {"type": "rest", "uri": topic.catalog, "cache-enabled": "false", **({"token": token} if token else {})}
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in properties.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    return name, f"{name}.lake.`{topic.name}`"


def rows_of(spark: "SparkSession", table: str) -> list[Row]:
    rows = spark.table(table).select("partition", "offset", "key", "value").collect()
    return as_rows(zip(*rows, strict=True))


def test_a_bucket_is_read_with_the_keys_that_come_with_the_table(
    spark: "SparkSession", penstock: PenstockFactory, minio: Minio, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text(f"{TOKEN}\n")
    options = {**AT_ONCE, "http-token-file": str(tmp_path / "tokens"), "catalog-vended-credentials": "sts"}
    store = f"s3://{minio.make_bucket('spark-catalog')}/a/prefix"
    topic = LakeTopic.create(penstock(options=options, store=store, env=minio.settings), "orders.of-2026", TOKEN)
    topic.produce(100)
    catalog, table = open_catalog(spark, topic, TOKEN)
    spark.conf.set(f"spark.sql.catalog.{catalog}.snapshot-loading-mode", "refs")
    assert [row["tableName"] for row in spark.sql(f"SHOW TABLES IN {catalog}.lake").collect()] == [topic.name]
    assert spark.table(table).count() == 0
    for _ in range(2):
        topic.produce(50)
        topic.archive()
        assert rows_of(spark, table) == topic.rows
    snapshots = [
        row[0] for row in spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at").collect()
    ]
    assert len(snapshots) == 2
    then = spark.sql(f"SELECT count(*) FROM {table} VERSION AS OF {snapshots[0]}").collect()
    assert [row[0] for row in then] == [450]
    with pytest.raises(Exception, match=r"Access Denied|403"):
        spark.sql(f"INSERT INTO {table} VALUES (0, 0L, current_timestamp(), 0, null, null, array())")
    assert rows_of(spark, table) == topic.rows


def test_nothing_that_spark_tries_changes_a_topic(
    spark: "SparkSession", penstock: PenstockFactory, tmp_path: Path
) -> None:
    """On the embedded store, whose files nothing but the catalog protects from a Spark of the same user."""
    topic = LakeTopic.create(penstock(options={"archive-interval-s": "3600"}), "orders")
    for _ in range(2):
        topic.produce(50)
        topic.archive()
    catalog, table = open_catalog(spark, topic)
    assert rows_of(spark, table) == topic.rows
    files = topic.files()
    first = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at").first()
    newest = spark.sql(f"SELECT file FROM {table}.metadata_log_entries ORDER BY timestamp DESC").first()
    assert first is not None
    assert newest is not None
    words = {
        "catalog": catalog,
        "table": table,
        "name": f"lake.{topic.name}",
        "snapshot": first[0],
        "metadata": newest[0],
        "elsewhere": f"file://{tmp_path}/elsewhere",
    }
    told = {statement: outcome(spark, statement.format(**words)) for statement in ATTEMPTS}
    assert {statement: text for statement, text in told.items() if not REFUSED.search(text)} == {}
    assert topic.files() == files
    assert rows_of(spark, table) == topic.rows
    assert topic.consumed() == topic.rows
    topic.produce(10)
    topic.archive()
    assert rows_of(spark, table) == topic.rows


def test_spark_sets_properties_and_names_snapshots_of_a_topic(spark: "SparkSession", penstock: PenstockFactory) -> None:
    topic = LakeTopic.create(penstock(options=AT_ONCE), "orders")
    topic.produce(50)
    topic.archive()
    _, table = open_catalog(spark, topic)
    before = rows_of(spark, table)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('owner.team' = 'billing', 'passing' = '1')")
    spark.sql(f"COMMENT ON TABLE {table} IS 'orders as they came'")
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('passing')")
    found = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    assert (found["owner.team"], found["gc.enabled"]) == ("billing", "false")
    assert "passing" not in found
    described = {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()}
    assert described["Comment"] == "orders as they came"
    spark.sql(f"ALTER TABLE {table} CREATE TAG audit RETAIN 365 DAYS")
    spark.sql(f"ALTER TABLE {table} CREATE BRANCH passing")
    topic.produce(50)
    topic.archive()
    spark.sql(f"REFRESH TABLE {table}")
    assert spark.sql(f"SELECT offset FROM {table} VERSION AS OF 'audit'").count() == len(before) == 150
    assert rows_of(spark, table) == topic.rows
    assert len(topic.rows) == 300
    assert REFUSED.search(outcome(spark, f"INSERT INTO {table}.branch_passing SELECT * FROM {table} LIMIT 1"))
    spark.sql(f"ALTER TABLE {table} DROP BRANCH passing")
    names = spark.sql(f"SELECT name, type, max_reference_age_in_ms FROM {table}.refs ORDER BY name").collect()
    assert [tuple(row) for row in names] == [("audit", "TAG", 365 * 24 * 3_600_000), ("main", "BRANCH", None)]
    for refused, words in (
        ("CREATE BRANCH b WITH SNAPSHOT RETENTION 2 SNAPSHOTS", "retains only the snapshot that it names"),
        ("SET TBLPROPERTIES ('write.format.default' = 'orc')", "penstock topics alter"),
    ):
        assert words in outcome(spark, f"ALTER TABLE {table} {refused}")


def outcome(spark: "SparkSession", statement: str) -> str:
    """What came of it: what was said where it was refused."""
    try:
        spark.sql(statement).collect()
    except Exception as error:  # what PySpark has no type of its own for is Py4J's
        return str(error)
    return "it was done"
