"""Schemas of records: how each format is read, and whose records a schema can read.

Rule: pure code: texts come in, verdicts come out; nothing here knows the registry, HTTP or the ledger. A format and its
library are imported where a schema of it is read, so that an agent without schemas does not load them.
"""
