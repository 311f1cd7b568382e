"""KAFKA-17754: the end of a transaction comes so late that it meets the next one of the same producer.

The network holds the first EndTxn; the client gives up that connection, asks again on another one, and begins its next
transaction. Then the held EndTxn arrives, on the connection on which it was sent. Where a producer's epoch does not
change between transactions (V1), a broker that judges by producer id and epoch alone takes it for the end of the
second one. Two acts, each as the history of one writer and one reader:

- `abort_late`: the late one aborts, while the second transaction has written to one key and not to the other yet. It
  goes on, commits, and has lost its first write.
- `commit_late`: the late one commits a second transaction that its client aborts: an aborted read.

Rule: the same script for every client and every broker; what comes of it is judged by the checker. The proxy stands
before the one agent that there is.
Source: https://issues.apache.org/jira/browse/KAFKA-17754, KIP-890.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.jepsen.history.history import History, Micro, MicroPoll, MicroSend, Op
from tests.jepsen.history.recorder import Recorder
from tests.jepsen.proxy.connection import Strike
from tests.jepsen.proxy.frames import Api, ProxiedRequest, end_txn_error, first_partition
from tests.jepsen.proxy.proxy import KafkaProxy
from tests.jepsen.proxy.rules import Act, Rule
from tests.jepsen.workload.client_slot import line_of
from tests.jepsen.workload.generator import Call
from tests.jepsen.workload.libraries import ENVIRONMENT
from tests.jepsen.workload.worker import WorkerProcess

TRANSACTION_TIMEOUT_MS = 60_000
"""So long that no time-out of the broker's plays a part."""
CALL_SECONDS_MAX = 60.0
READ_SECONDS_MAX = 20.0
POLLS_BETWEEN = 8
"""Between two sends of a transaction: so long (100 ms each) that the first is written when the second begins."""
V2_FIRST = 5
"""The first version of EndTxn that is V2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`error`: what the broker answered to the late EndTxn; -1 where it hung up. `first`, `second`: transactions."""

    history: History
    version: int
    error: int
    first: Op
    second: Op


@dataclass(slots=True, kw_only=True)
class Scene:
    """One client's program and the proxy before the broker. Use it in a `with` block; `topic` has two partitions.

    `is_copied`: the first EndTxn passes, and it is a copy of it that comes late, on a connection of its own. V1 has
    nothing by which a broker could tell such a one from the next transaction's; V2 has the epoch.
    """

    client: str
    command: Sequence[str]
    proxy: KafkaProxy
    folder: Path
    topic: str
    is_copied: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _process: int = 0
    _worker: WorkerProcess = field(init=False)
    _recorder: Recorder = field(init=False)
    _thread: ThreadPoolExecutor = field(init=False)

    def __enter__(self) -> Self:
        arguments = [f"127.0.0.1:{self.proxy.port}", self.topic, self.topic, str(TRANSACTION_TIMEOUT_MS)]
        self._recorder = self._stack.enter_context(Recorder(self._path))
        self._thread = self._stack.enter_context(ThreadPoolExecutor(1))
        self._worker = WorkerProcess([*self.command, *arguments], self.folder / f"{self.topic}.log", ENVIRONMENT)
        self._stack.callback(self._worker.kill)
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    @property
    def keys(self) -> tuple[str, str]:
        return f"{self.topic}-0", f"{self.topic}-1"

    @property
    def _path(self) -> Path:
        return self.folder / f"{self.topic}.jsonl"

    def commit_late(self) -> Outcome:
        """The second transaction is aborted; before that, the late commit of the first one arrives."""
        key, _ = self.keys
        late, first = self._end_held(MicroSend(key, 0), is_aborted=False)
        end = self._rule(Api.END_TXN)
        second = self._begin(Call(f="txn", micros=(MicroSend(key, 1),), is_aborted=True))
        return self._outcome(late, end, first, second)

    def abort_late(self) -> Outcome:
        """The second transaction has written to the first key when the late abort of the first one arrives."""
        key, other = self.keys
        late, first = self._end_held(MicroSend(key, 0), is_aborted=True)
        # V1 adds the other partition by a request of its own; with V2 its first Produce does.
        api = Api.PRODUCE if late.request.version >= V2_FIRST else Api.ADD_PARTITIONS_TO_TXN
        added = self._rule(api, body=lambda request: first_partition(request) == 1)
        between = [MicroPoll()] * POLLS_BETWEEN
        micros: tuple[Micro, ...] = (MicroSend(key, 1), *between, MicroSend(other, 1))
        second = self._begin(Call(f="txn", micros=micros))
        return self._outcome(late, added, first, second)

    def _end_held(self, send: MicroSend, *, is_aborted: bool) -> tuple[Strike, Op]:
        """A transaction whose first EndTxn is held; it ends by the second one. With `is_copied` only a copy is held."""
        self._call(Call(f="assign", keys=self.keys[1:]))
        end = self._rule(Api.END_TXN, act=Act.DUPLICATE if self.is_copied else Act.HOLD)
        first = self._call(Call(f="txn", micros=(send,), is_aborted=is_aborted))
        return self.proxy.wait_struck(end), first

    def _outcome(self, late: Strike, pause: Rule, first: Op, second: "Future[Op]") -> Outcome:
        """Let the late one arrive while the second transaction pauses; then read everything."""
        paused = self.proxy.wait_struck(pause)
        self.proxy.release(late)
        answer = self.proxy.wait_answered(late)
        self.proxy.release(paused)
        ended = second.result(CALL_SECONDS_MAX)
        last = self._call(Call(f="txn", micros=(MicroSend(self.keys[0], 2),)))
        assert last.type == "ok", f"the last transaction, by which one sees how far all is read: {last}"
        self._read_up_to([op for op in (first, ended, last) if op.type == "ok"])
        version = late.request.version
        return Outcome(
            history=History.read(self._path),
            version=version,
            error=-1 if answer is None else end_txn_error(answer, version),
            first=first,
            second=ended,
        )

    def _read_up_to(self, acknowledged: Sequence[Op]) -> None:
        """Read both keys from the beginning, as another process, until the last record of each is there."""
        self._process += 1
        missing = {send.key: send.value for op in acknowledged for send in op.sends()}
        self._call(Call(f="assign", keys=self.keys), is_final=True)
        deadline_s = time.monotonic() + READ_SECONDS_MAX
        while time.monotonic() < deadline_s:
            polled = self._call(Call(f="poll", micros=(MicroPoll(),)), is_final=True)
            for micro in polled.micros:
                if isinstance(micro, MicroPoll):
                    read = {(key, value) for key, pairs in micro.records.items() for _, value in pairs}
                    missing = {key: value for key, value in missing.items() if (key, value) not in read}
            if not missing:
                return
        raise AssertionError(f"{missing} is not read within {READ_SECONDS_MAX} s")

    def _rule(self, api: Api, *, act: Act = Act.HOLD, body: Callable[[ProxiedRequest], bool] | None = None) -> Rule:
        """Hold one request of this transactional id, or a copy of it, from now on."""
        is_copy = act is Act.DUPLICATE
        rule = Rule(act=act, api_key=api, transactional_id=self.topic, body=body, is_held=is_copy, is_elsewhere=is_copy)
        self.proxy.add(rule)
        return rule

    def _begin(self, call: Call) -> "Future[Op]":
        return self._thread.submit(self._call, call)

    def _call(self, call: Call, *, is_final: bool = False) -> Op:
        invoked = self._recorder.invoke(self._process, self.client, call, is_final=is_final)
        answer = self._worker.ask(line_of(call, is_final=is_final), seconds_max=CALL_SECONDS_MAX)
        assert answer is not None, f"{self.client} does not answer: see {self.folder}"
        return self._recorder.complete(invoked, answer)
