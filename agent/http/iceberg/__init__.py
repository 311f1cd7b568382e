"""The Iceberg REST catalog: topics as tables, read by Spark, DuckDB and others.

In: requests of Iceberg's REST specification. Out: table metadata, credentials for the bucket, and errors in the
specification's form. Changes to tables go through `agent.lake.table_updates`.
"""
