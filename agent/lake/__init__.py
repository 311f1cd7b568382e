"""Topics as tables: archive passes, file compaction, snapshot expiry, rewrites, external catalogs.

In: chunks of the intake, and tables as the ledger knows them. Out: Parquet files and Iceberg metadata in the bucket,
and the ledger entries that commit them. The file formats are in `iceberg_export`.
"""
