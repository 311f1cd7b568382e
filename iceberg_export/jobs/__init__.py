"""Spark jobs over whole tables: `penstock lake verify` runs them on this machine, `spark-submit` on a cluster.

They read the bucket, as the data source does, and their imports go into the same zip archive
(`iceberg_export.spark.package`). Only this package and `iceberg_export.spark` know Spark.
"""
