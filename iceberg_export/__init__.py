"""The archive: Kafka's records as Parquet files of Iceberg tables, and back.

From the bottom up: rows, typed columns, tables, Parquet files, archive passes, file compaction, the tail manifest, the
Spark source and jobs.
"""
