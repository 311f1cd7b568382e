"""The metadata of Iceberg tables, format version 2. Penstock is the only writer of these tables.

Nothing here knows the ledger. New metadata is derived from the metadata before it, and put under new keys. It is valid
once the ledger has the entry that names it. Until then it is garbage of the session that is in its keys.
"""
