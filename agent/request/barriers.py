"""A barrier for handlers that answer without one too, with an error or by an older state."""

from agent.request.services import Services
from coordinator.ledger.port import LedgerUnavailable


async def passes_barrier(services: Services) -> bool:
    """Whether the ledger answered a barrier: the state then has every entry of before the call (safety rule S4)."""
    try:
        await services.ledger.barrier()
    except LedgerUnavailable:
        return False
    return True
