"""Entries of tables in catalogs of others (SQL, REST, Glue, Hive), through PyIceberg."""
