"""The archive: writes Kafka's records as Parquet files of Iceberg tables, and reads them back.

From the bottom up: rows, typed columns, tables, Parquet files, archive passes, file compaction, the tail manifest, the
Spark source and jobs.
"""
