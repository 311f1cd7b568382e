"""Tables: the metadata of Iceberg tables, format version 2, as Penstock alone writes it.

Rule: nothing here knows the ledger. Metadata is made of the metadata before it, put under new keys, and counts once the
ledger says so; until then it is garbage of the session that is in its keys.
"""
