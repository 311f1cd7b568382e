"""The format of a history: what is written is what is read, and what is no history is refused with its line."""

import json
from pathlib import Path

import pytest

from tests.jepsen.history.history import History, HistoryError, MicroPoll, MicroSend, Op

INVOKED = (
    '{"index":0,"time_ns":5,"process":3,"type":"invoke","f":"txn","value":[["send","a-1",4],["poll"]],'
    '"error":null,"client":"java-v2"}'
)
COMPLETED = (
    '{"index":1,"time_ns":9,"process":3,"type":"ok","f":"txn","value":[["send","a-1",[17,4]],'
    '["poll",{"a-0":[[5,1],[6,2]]}]],"error":null,"client":"java-v2","rebalance_log":["a-0"]}'
)


def invoked(index: int, **fields: object) -> str:
    return _line(index, "invoke", fields)


def completed(index: int, **fields: object) -> str:
    return _line(index, "ok", fields)


def _line(index: int, kind: str, fields: dict[str, object]) -> str:

    base = {"index": index, "time_ns": index, "process": 0, "type": kind, "f": "poll", "value": []}
    return json.dumps({**base, **fields})


def history(*lines: str) -> History:
    return History.of(Op.from_json(line) for line in lines)


def test_a_line_is_read_as_it_says() -> None:
    op = Op.from_json(COMPLETED)
    assert op.micros == (MicroSend("a-1", 4, 17), MicroPoll({"a-0": ((5, 1), (6, 2))}))
    assert (op.index, op.time_ns, op.process, op.type, op.f) == (1, 9, 3, "ok", "txn")
    assert (op.client, op.error, op.rebalance_log, op.final) == ("java-v2", None, ("a-0",), False)


@pytest.mark.parametrize(
    "line",
    [
        INVOKED,
        COMPLETED,
        '{"index":2,"time_ns":9,"process":3,"type":"info","f":"crash","value":null,"error":"gone","client":"","rebalance_log":[]}',
        '{"index":2,"time_ns":9,"process":3,"type":"ok","f":"assign","value":["a-0"],"error":null,"client":"","rebalance_log":[],'
        '"final":true}',
    ],
)
def test_a_line_written_is_the_line_read(line: str) -> None:
    assert Op.from_json(line).to_json() == line


def test_a_file_is_read_into_calls_in_the_order_of_their_ends(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(
        "\n".join([invoked(0, process=1), invoked(1, process=2), completed(2, process=2), completed(3, process=1)])
    )
    calls = History.read(path).calls
    assert [(call.invoked.index, call.completed.index) for call in calls] == [(1, 2), (0, 3)]


def test_a_call_that_never_ended_is_an_info_behind_the_last_line() -> None:
    lines = invoked(0, value=[["send", "a-0", 7]], f="send"), invoked(1, process=1), completed(2, process=1)
    last = history(*lines).calls[-1].completed
    assert (last.type, last.index, last.time_ns) == ("info", 3, 2)
    assert last.micros == (MicroSend("a-0", 7),)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[", "not JSON"),
        ("[]", "an object"),
        (invoked(0, type="done"), "type: one of invoke, ok, fail, info"),
        (invoked(0, f="read"), "f: one of txn"),
        (invoked(0, f="crash", value=[]), "value of a crash: null"),
        (invoked(0, process="a"), "process: an integer"),
        (invoked(0, time_ns=True), "time_ns: an integer"),
        (invoked(0, error=1), "error: a string"),
        (invoked(0, client=None), "client: a string"),
        (invoked(0, final=None), "final: true"),
        (invoked(0, f="assign", value=[1]), "value: a list of strings"),
        (completed(0, rebalance_log="a-0"), "rebalance_log: a list of strings"),
        (invoked(0, value=None), "a list of sends and polls"),
        (invoked(0, value=[["send", "a-0", [None, 1]]]), "a call sends"),
        (invoked(0, value=[["poll", {}]]), "a call sends"),
        (completed(0, value=[["send", "a-0", 1]]), "a completion tells"),
        (completed(0, value=[["send", "a-0", [-1, 1]]]), "the offset of a send: from 0 on, or null"),
        (completed(0, value=[["poll"]]), "a completion tells"),
        (completed(0, value=[["poll", {"a-0": 1}]]), "a poll tells"),
        (completed(0, value=[["poll", {"a-0": [1]}]]), "a poll tells"),
        (completed(0, value=[["poll", {"a-0": [[1, 2, 3]]}]]), "a poll tells"),
        (completed(0, value=[["poll", {"a-0": [[1, None]]}]]), "a poll tells"),
    ],
)
def test_a_line_of_another_shape_is_refused(line: str, message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        Op.from_json(line)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([invoked(1), completed(1)], "follows"),
        ([invoked(0), completed(1, time_ns=-1)], "follows"),
        ([invoked(0), invoked(1)], "calls before line 0 ended"),
        ([completed(0)], "ends what it did not call"),
        ([invoked(0), completed(1, f="txn")], "ends a txn, but line 0 called poll"),
        ([invoked(0, f="crash", value=None), completed(1, f="crash", value=None), invoked(2)], "has crashed"),
        (
            [invoked(0, value=[["send", "a-0", 1]]), completed(1, value=[["send", "a-0", [None, 2]]])],
            "tells of sends",
        ),
        (
            [invoked(0, value=[["send", "a-0", 1]]), invoked(1, process=1, value=[["send", "a-0", 1]])],
            "lines 0 and 1 both send 1 to a-0",
        ),
    ],
)
def test_operations_that_are_no_history_are_refused(lines: list[str], message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        history(*lines)


def test_the_message_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(f"{INVOKED}\n\n")
    with pytest.raises(HistoryError, match=r"history\.jsonl:2: not JSON"):
        History.read(path)
