"""What happened in a run: a digest of all of it, the newest of it in words, and what was found to be wrong.

Rule: a line holds nothing that differs between two runs of a seed: no address, no time of this machine, no order of a
set.
"""

import asyncio
import hashlib
import logging
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.loop import NODE

TRACE_LINES_MAX = 400


class Violation(Exception):
    """Something that must never happen has happened; the run ends."""


class History:
    """Lines of one run."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.counts: Counter[str] = Counter()
        """How often each kind of event was noted."""
        self.trace: deque[str] = deque(maxlen=TRACE_LINES_MAX)
        self.violations: list[str] = []
        self._digest = hashlib.blake2b(digest_size=16)

    def note(self, who: str, kind: str, what: str = "") -> None:
        """One thing that happened, to `who`."""
        line = f"{self._now_s():10.4f} {who:<12} {kind:<18} {what}"
        self.counts[kind] += 1
        self._digest.update(line.encode())
        self.trace.append(line)

    def remark(self, who: str, what: str) -> None:
        """Something for whoever reads the trace; no part of the digest."""
        self.trace.append(f"{self._now_s():10.4f} {who:<12} | {what}")

    def violation(self, what: str) -> None:
        """Something is wrong. The run ends soon, and fails."""
        self.note("auditor", "VIOLATION", what)
        self.violations.append(what)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def _now_s(self) -> float:
        return 0.0 if self.loop is None else self.loop.time()


class _LogToTrace(logging.Handler):
    """What agents log goes into the trace, under the agent's name."""

    _STANDARD = frozenset(vars(logging.makeLogRecord({})))

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        extra = {name: value for name, value in vars(record).items() if name not in self._STANDARD}
        who = NODE.get()
        if record.exc_info is not None and record.exc_info[1] is not None:
            extra["error"] = repr(record.exc_info[1])
        self._history.remark("world" if who is None else str(who), f"{record.getMessage()} {extra or ''}")


@contextmanager
def logs_in(history: History) -> Iterator[None]:
    """Agents' logs go to the history, and nowhere else."""
    logger = logging.getLogger("agent")
    handler = _LogToTrace(history)
    level, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates
