"""What is written down of an answer: all of it, but for offsets where nobody knows any."""

from pathlib import Path

import pytest

from tests.jepsen.history.history import Function, MicroPoll, MicroSend
from tests.jepsen.history.recorder import Recorder
from tests.jepsen.workload.generator import Call


@pytest.mark.parametrize(("f", "tells_offsets", "offset"), [("txn", True, 4), ("txn", False, None), ("send", False, 4)])
def test_where_a_record_stands_is_kept_where_it_means_anything(
    tmp_path: Path, f: Function, tells_offsets: bool, offset: int | None
) -> None:
    call = Call(f=f, micros=(MicroSend("a-0", 1), MicroPoll()))
    with Recorder(tmp_path / "history.jsonl", tells_offsets=tells_offsets) as recorder:
        invoked = recorder.invoke(recorder.new_process(), "a", call, is_final=False)
        answer = {"type": "ok", "value": [["send", "a-0", [4, 1]], ["poll", {"b-0": [[7, 2]]}]]}
        completed = recorder.complete(invoked, answer)
    assert completed.micros == (MicroSend("a-0", 1, offset), MicroPoll({"b-0": ((7, 2),)}))
