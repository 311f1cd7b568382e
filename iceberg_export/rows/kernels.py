"""Decides when a process, an agent or one of Spark's, loads the compiled kernels.

No caller waits for them. A thread of its own loads them once the reference implementation has taken so many records
that it pays. Until then the reference works, with the same results. The load takes half a second of a processor and
110 MB, or ten seconds where no cache of compiled code exists; a process with little work saves both. Where it fails,
the reference stays in use. The log says that once, or that the compiled code could not be cached.
"""

import gc
import logging
from threading import Lock, Thread

from protocol.limits import PLAIN_RECORDS_MAX
from protocol.records.records import observe_plain_records, warm_kernels

log = logging.getLogger(__name__)


class Kernels:
    """Counts the records that the reference takes, and starts the load at `PLAIN_RECORDS_MAX` of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._records = 0
        self._loading: Thread | None = None

    def watch(self) -> None:
        """Begin to count the records of this process."""
        observe_plain_records(self.count)

    def count(self, record_count: int) -> None:
        """Add `record_count` records that the reference is about to take."""
        with self._lock:
            self._records += record_count
            if self._loading is None and self._records > PLAIN_RECORDS_MAX:
                # A daemon thread: the process ends without waiting for it.
                self._loading = Thread(target=_load, name="penstock-kernels", daemon=True)
                self._loading.start()

    def wait(self) -> bool:
        """Wait for a load that has begun. False where none has."""
        if self._loading is None:
            return False
        self._loading.join()
        return True


def _load() -> None:
    # Nearly all objects that numba creates here stay alive. The cyclic GC would scan them again and again, and block
    # every other thread meanwhile.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        warm_kernels()
        _log_uncached()
    except Exception:  # the thread's own supervisor: no caller would see the error
        log.exception("the compiled kernels cannot be loaded: records are decoded without them, 50 times more slowly")
    finally:
        if was_enabled:
            gc.enable()


def _log_uncached() -> None:
    from protocol.kernel_cache import uncached_reason  # imports numba

    reason = uncached_reason()
    if reason:
        log.warning(
            "the compiled kernels are not cached: each start compiles them again, which takes some ten seconds of a "
            "processor; name a folder that this user may write, by --cache-dir of an agent, or by NUMBA_CACHE_DIR",
            extra={"reason": reason},
        )


KERNELS = Kernels()
"""The counter of this process."""
