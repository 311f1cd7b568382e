"""The tail manifest: the records that no table has yet, with their intake objects, for readers without a broker."""
