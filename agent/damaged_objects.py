"""Which objects this agent found damaged: each is logged once, and not read again for a while.

Rule: stored bytes are checked before they are believed (safety rule S20). Consumers of a damaged object ask for it many
times a second, and neither the log nor the store is to pay for that. It is read again after
`DAMAGED_OBJECT_REREAD_INTERVAL_S`, so that an object that was put back is served again by itself.
"""

import logging
from collections import OrderedDict
from collections.abc import Container
from dataclasses import dataclass

from agent.clock import Clock
from protocol.limits import DAMAGED_OBJECT_REREAD_INTERVAL_S, DAMAGED_OBJECTS_REMEMBERED_MAX
from storage.object_store import ObjectDamaged

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Damage:
    error: ObjectDamaged
    found_s: float
    is_logged: bool = False


class DamagedObjects:
    """Every agent has one."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._by_key: OrderedDict[str, _Damage] = OrderedDict()

    def found(self, key: str, error: ObjectDamaged) -> None:
        """Note that the object was read just now, and is damaged."""
        known = self._by_key.pop(key, None)
        self._by_key[key] = _Damage(error, self._clock.monotonic_s(), known is not None and known.is_logged)
        if len(self._by_key) > DAMAGED_OBJECTS_REMEMBERED_MAX:
            self._by_key.popitem(last=False)

    def recent(self, key: str) -> ObjectDamaged | None:
        """What was wrong with the object, where it was read so lately that it is not read again yet."""
        known = self._by_key.get(key)
        if known is None or self._clock.monotonic_s() >= known.found_s + DAMAGED_OBJECT_REREAD_INTERVAL_S:
            return None
        return known.error

    def was_read(self, key: str) -> None:
        """Forget the object: it was read again and is whole."""
        self._by_key.pop(key, None)

    def report(self, key: str, **where: object) -> None:
        """Log the damage of an object, once. `where`: what the log line says of the records that cannot be read."""
        known = self._by_key.get(key)
        if known is None or known.is_logged:
            return
        known.is_logged = True
        log.error(
            "an object is damaged: its records are not served, and everything else is; put its bytes back from a copy, "
            'or give its records up: docs/RUNBOOK.md, "A damaged file"',
            extra={"key": key, "reason": str(known.error), **where},
        )

    def count(self, referenced: Container[str]) -> int:
        """How many of the objects that were found damaged are in `referenced`."""
        return sum(key in referenced for key in self._by_key)
