"""File compaction: small neighbouring data files of a table become large ones (Iceberg: rewrite data files)."""
