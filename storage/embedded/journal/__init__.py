"""A journal in a folder: intake objects and entries of a ledger in the same files, made durable by the same sync."""
