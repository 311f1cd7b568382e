"""Entries of tables in external catalogs (SQL, REST, Glue, Hive), through PyIceberg."""
