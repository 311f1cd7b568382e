"""The program of a worker: makes one call after the other for its agent, until the agent ends or asks for none.

It is started by `agent.lake.worker.worker`, with a socket that gets a byte and the memory of a message for each call,
and gives the same for each result; the first one says whether it is ready. What a call raises goes back as text. It
writes nothing to the agent's output.
"""

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from agent.lake.worker.messages import read_message, write_message
from agent.lake.worker.program import fingerprint
from protocol.kernel_folder import choose_kernel_folder
from protocol.limits import WORKER_IDLE_SECONDS, WORKER_MESSAGE_BYTES_MAX, WORKER_NICENESS

CALL = b"c"
RESULT = b"r"
_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that this process gets when its parent ends."""
_OOM_SCORE_ADJ = "1000"
"""proc(5): the kernel ends this process first where memory is short, and its agent last."""


def main(descriptor: str, agent_pid: str, kernel_folder: str) -> None:
    """Serve calls. `kernel_folder`: the agent's folder for compiled code; empty for none."""
    _end_with(int(agent_pid))
    os.nice(WORKER_NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJ)
    choose_kernel_folder(Path(kernel_folder) if kernel_folder else None)
    with socket.socket(fileno=int(descriptor)) as agent:
        is_ready = _answer(agent, _made_ready)
        agent.settimeout(WORKER_IDLE_SECONDS)
        while is_ready:
            try:
                message, descriptors, _, _ = socket.recv_fds(agent, len(CALL), 1)
            except TimeoutError:
                return
            if not message or not descriptors:
                return
            _answer(agent, partial(_made, descriptors[0]))
    sys.exit(1)


def _answer(agent: socket.socket, make: Callable[[], object]) -> bool:
    """Send what is made, or the text of the exception; returns whether it was made."""
    began_s = time.process_time()
    try:
        memory = _message(is_made=True, result=make(), began_s=began_s)
        is_made = True
    except Exception as error:  # the agent makes the call itself, and meets it there
        is_made = False
        memory = _message(is_made=False, result=f"{type(error).__name__}: {error}", began_s=began_s)
    try:
        socket.send_fds(agent, [RESULT], [memory])
    finally:
        os.close(memory)
    return is_made


def _message(*, is_made: bool, result: object, began_s: float) -> int:
    return write_message((is_made, result, time.process_time() - began_s), bytes_max=WORKER_MESSAGE_BYTES_MAX)


def _made(call: int) -> object:
    return cast("Callable[[], object]", read_message(call))()


def _made_ready() -> object:
    """Load what calls need, with the kernels: no call waits for that. Returns the program's fingerprint."""
    import iceberg_export.compaction.writer
    import iceberg_export.parquet.writer  # noqa: F401
    from protocol.records.records import warm_kernels

    warm_kernels()
    gc.freeze()
    return fingerprint()


def _end_with(agent_pid: int) -> None:
    """End where the agent ends, however it does; and where it has ended meanwhile. Its signals do not count here."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent_pid:
        sys.exit()
