"""Many partitions are answered in a thread, with the bytes that the loop would have made."""

import threading
from collections.abc import Sequence

import pytest

from agent import turns
from agent.handlers import metadata
from agent.handlers.entities import Values, answer
from protocol.connection import RequestFrame
from storage.object_store import Buffer
from tests.unit.agent.handlers.test_ledger_waits import Impatient, joined, request, stalled

BY_NAME = b"\0\0\0\2\0\1t\0\1u\0"


async def test_many_partitions_are_answered_in_a_thread_and_few_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noted(frame: RequestFrame, values: Values) -> Sequence[Buffer]:
        threads.append(threading.current_thread().name)
        return answer(frame, values)

    monkeypatch.setattr(metadata, "answer", noted)
    async with stalled(Impatient()) as services:
        inline = joined(await metadata.handle(services, request(3, 4, BY_NAME)))
        monkeypatch.setattr(turns, "INLINE_ROWS_MAX", 0)
        threaded = joined(await metadata.handle(services, request(3, 4, BY_NAME)))
    assert inline == threaded
    assert b"\0\1t" in inline
    assert threads[0] == threading.current_thread().name
    assert threads[1].startswith("cpu")
