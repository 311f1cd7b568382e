"""Spark's data source `penstock`: topics in batches and streams, straight from the bucket.

Rule: no broker is asked and nothing is written. `source` alone imports pyspark; what plans and reads stands beside it
and can be tested without. Everything that is imported here goes into the archive that `package` builds, so it stays
small. Guide: docs/spark.md.
"""
