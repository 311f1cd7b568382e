"""The tail manifest: which intake objects hold the records that no table has yet, for readers without a broker."""
