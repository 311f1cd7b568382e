"""When a process of Spark's reads records by compiled kernels.

Rule: nobody waits for them. They are loaded in a thread of their own once so much was read that it pays; until then the
reference reads, with the same results. To load them takes half a second of a processor, where nothing keeps what was
compiled ten: as much as it takes to read tens of thousands of records without them, or hundreds of thousands.
"""

from threading import Lock, Thread

from protocol.limits import SPARK_PLAIN_BYTES_MAX
from protocol.records import warm_kernels


class Kernels:
    """Counts what a process reads, and has the kernels loaded when it is enough."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._bytes = 0
        self._loading: Thread | None = None

    def read(self, byte_count: int) -> None:
        """So many bytes of records were, or are about to be, read."""
        with self._lock:
            self._bytes += byte_count
            if self._loading is None and self._bytes > SPARK_PLAIN_BYTES_MAX:
                # A process of Spark's ends without waiting for it.
                self._loading = Thread(target=warm_kernels, name="penstock-kernels", daemon=True)
                self._loading.start()

    def wait(self) -> bool:
        """Whether they were to be loaded; they are then."""
        if self._loading is None:
            return False
        self._loading.join()
        return True


KERNELS = Kernels()
"""This process's."""
