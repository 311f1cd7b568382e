"""Spark's data source `penstock`: reads topics from the bucket, in batches and streams.

Reading sends no request to a broker. Only `source` imports pyspark, so planning and reading can be tested without it.
Every import here goes into the zip archive that `package` builds, so it stays small. Guide: docs/spark.md.
"""
