"""Spark jobs over whole tables: `penstock lake verify` runs them here, `spark-submit` on a cluster.

Rule: like the data source they read the bucket, and what they import goes into the same archive
(`iceberg_export.spark.package`). This package and `iceberg_export.spark` alone know Spark.
"""
