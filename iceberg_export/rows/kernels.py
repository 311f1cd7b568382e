"""When a process has the compiled kernels loaded, an agent or one of Spark's.

Rule: nobody waits for them. They are loaded in a thread of their own once so many records were taken without them that
it pays; until then the reference works, with the same results. To load them takes half a second of a processor and 110
MB, ten seconds where nothing keeps what was compiled; a process that has little to do keeps both. Where they cannot be
loaded the reference goes on, and the log says so once.
"""

import gc
import logging
from threading import Lock, Thread

from protocol.limits import PLAIN_RECORDS_MAX
from protocol.records.records import observe_plain_records, warm_kernels

log = logging.getLogger(__name__)


class Kernels:
    """Counts records that the reference takes, and has the kernels loaded when it is enough."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._records = 0
        self._loading: Thread | None = None

    def watch(self) -> None:
        """Count what this process does from now on."""
        observe_plain_records(self.count)

    def count(self, record_count: int) -> None:
        """So many records are about to be taken by the reference."""
        with self._lock:
            self._records += record_count
            if self._loading is None and self._records > PLAIN_RECORDS_MAX:
                # A process ends without waiting for it.
                self._loading = Thread(target=_load, name="penstock-kernels", daemon=True)
                self._loading.start()

    def wait(self) -> bool:
        """Whether they were to be loaded; they are then."""
        if self._loading is None:
            return False
        self._loading.join()
        return True


def _load() -> None:
    # What is made meanwhile stays; the collector would go through all of it again and again, and hold everybody up.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        warm_kernels()
    except Exception:  # the thread's own supervisor: nobody waits for it
        log.exception("the compiled kernels cannot be loaded: records are taken without them, 50 times more slowly")
    finally:
        if was_enabled:
            gc.enable()


KERNELS = Kernels()
"""This process's."""
