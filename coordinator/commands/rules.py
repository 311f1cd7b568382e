"""The versions of apply's rules, in the order in which they landed (safety rule S3).

Rule: a version has a name here and a line that says what it brings. Code compares with the name, never with a number. A
change of what `coordinator.apply.apply` computes, or of the form of an entry or a snapshot, belongs to the newest
version as long as no release has it; after that it takes the next number. `tests/architecture/test_rules.py` notices
one that does not. docs/adr/0021: how a change is made, and what an agent of another version does.
"""

from typing import Final

RULES_FIRST: Final = 1
"""The rules of clusters that were created before the second version."""

RULES_CHECKED_STORAGE: Final = 2
"""Checksums of chunks in the ledger, a bound for producer states, aborted ranges that apply itself sees dropped (S5),
folders of topics whose names are too long for one."""

RULES_CHECKED_ENTRIES: Final = 3
"""A checksum in every entry, of its bytes, its session and its number. The first sequence of each producer's run, by
which repeats are known that are no longer remembered."""

RULES_SECURITY: Final = 4
"""ACLs and SCRAM credentials."""

RULES_DELEGATION_TOKENS: Final = 5
"""Delegation tokens. A user's last SCRAM credential takes the user's tokens with it."""

RULES_QUOTA_USE: Final = 6
"""Bytes of producers, by quota, in the entries that commit their records (quotas of the whole cluster)."""

RULES_AGENTS: Final = 7
"""Agents' descriptions of themselves, drains on request and their times, and a hold of the versions after this one."""

RULES_NEWEST: Final[int] = RULES_AGENTS
"""The newest version that this program knows. It serves no cluster in which a later one is in force."""
