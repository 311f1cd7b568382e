"""The program of a worker: makes one call after the other for its agent, until the agent ends or asks for none.

It is started by `agent.lake.worker.worker`, with a socket that gets a byte and a descriptor for each call, and gives
the same for each result. What a call raises goes back as text. It writes nothing to the agent's output.
"""

import ctypes
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from agent.lake.worker.messages import read_message, write_message
from protocol.kernel_folder import choose_kernel_folder
from protocol.limits import WORKER_IDLE_SECONDS, WORKER_MESSAGE_BYTES_MAX, WORKER_NICENESS

READY = b"+"
CALL = b"c"
RESULT = b"r"
_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that this process gets when its parent ends."""


def main(descriptor: str, agent_pid: str, kernel_folder: str) -> None:
    """Serve calls. `kernel_folder`: the agent's folder for compiled code; empty for none."""
    _end_with(int(agent_pid))
    os.nice(WORKER_NICENESS)
    choose_kernel_folder(Path(kernel_folder) if kernel_folder else None)
    with socket.socket(fileno=int(descriptor)) as agent:
        _import()
        agent.sendall(READY)
        agent.settimeout(WORKER_IDLE_SECONDS)
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(agent, len(CALL), 1)
            except TimeoutError:
                return
            if not message or not descriptors:
                return
            socket.send_fds(agent, [RESULT], [memory := _result_of(descriptors[0])])
            os.close(memory)


def _result_of(call: int) -> int:
    """Makes the call of a message; returns the message with its result: whether it was made, what came of it, CPU s."""
    began_s = time.process_time()
    try:
        work = cast("Callable[[], object]", read_message(call))
        result = work()
    except Exception as error:  # the caller makes the call itself, and meets it there
        return _message(is_made=False, result=f"{type(error).__name__}: {error}", began_s=began_s)
    try:
        return _message(is_made=True, result=result, began_s=began_s)
    except Exception as error:
        return _message(is_made=False, result=f"{type(error).__name__}: {error}", began_s=began_s)


def _message(*, is_made: bool, result: object, began_s: float) -> int:
    return write_message((is_made, result, time.process_time() - began_s), bytes_max=WORKER_MESSAGE_BYTES_MAX)


def _end_with(agent_pid: int) -> None:
    """End where the agent ends, however it does; and where it has ended meanwhile. Its signals do not count here."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent_pid:
        sys.exit()


def _import() -> None:
    """Load what calls need, with the kernels: no call waits for that."""
    import iceberg_export.compaction.writer
    import iceberg_export.parquet.writer  # noqa: F401
    from protocol.records.records import warm_kernels

    warm_kernels()
    gc.freeze()
