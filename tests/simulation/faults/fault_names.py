"""The kinds of fault that may happen to a simulated cluster; `tests.simulation.plan` draws those of a world."""

from enum import StrEnum
from typing import Final


class FaultName(StrEnum):
    """What may happen to a cluster."""

    CRASH = "crash"
    RESTART = "restart"
    """In order: an agent drains, ends its session, and comes back."""
    PAUSE = "pause"
    """Shorter or longer than the lease: it comes back as a zombie."""
    LEDGER_CUT = "ledger cut"
    """One agent and the ledger, in both directions; refused, or silent."""
    LEDGER_SHAKY = "ledger shaky"
    """Requests and answers are lost or come late: the outcome is unknown."""
    LEDGER_LAG = "ledger lag"
    """One agent reads the ledger late, perhaps later than it is trimmed."""
    STORE_CUT = "store cut"
    STORE_SHAKY = "store shaky"
    """Slow, failing, late and unknown puts; failing, truncated and missing gets; stale and broken lists."""
    CLIENT_CUT = "client cut"
    """Clients do not reach one agent."""
    CLOCK = "clock"
    """The wall clock of one agent jumps."""
    STORE_DENIED = "store denied"
    """The bucket answers 403 to some kinds of request, of one agent or of all."""
    DISK_FULL = "disk full"
    """The store has no room (ENOSPC), but for snapshots, which have a reserve."""
    LEDGER_FULL = "ledger full"
    """The ledger takes no writes (etcd's NOSPACE), and answers everything else; leases are renewed."""
    UNDELETABLE = "undeletable"
    """Some objects cannot be deleted, as where a policy or a lock protects them."""
    UNCONDITIONAL = "unconditional"
    """The store ignores If-None-Match, as behind a proxy that does not know it."""
    STORE_REPLACED = "store replaced"
    """One agent's requests, or all, go to another, empty bucket; what came into it is brought back at the end."""
    STORE_DAMAGED = "store damaged"
    """What agents read of archive files has a flipped bit now and then, as behind a proxy with bad memory."""
    NAMESAKE = "namesake"
    """Another process starts under an agent's name, sure that it alone has it, while the one before goes on."""
    AGENTS_CUT = "agents cut"
    """One agent and the others, between which requests of groups are relayed; silent."""
    POWER_CUT = "power cut"
    """Of the machine of an embedded broker, at once or within a write: what was not synced is torn."""
    DISK_FAILING = "disk failing"
    """Some operations on the files of a journal fail, or there is no room for a while."""


FIRST_FAULTS: Final = tuple(FaultName)[:10]
"""Those that were there when seeds began to be written down: each is drawn from a seed's own stream."""
HARD_FAULTS: Final = tuple(FaultName)[10:17]
