"""The archive: Kafka's records as Parquet, and back.

Rule of the package: the files written here are the only copy of archived records, so every byte of a record must come
back exactly.
"""
