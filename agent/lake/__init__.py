"""Topics as tables: archive passes, file compaction, snapshot expiry, rewrites, external catalogs.

In: chunks of the intake, and tables as the ledger knows them. Out: Parquet files and Iceberg metadata in the bucket,
and the ledger entry that makes each count. What the bytes look like is `iceberg_export`.
"""
