"""Conversations with the coordinator of transactions, for tests: requests by their versions, answers as clients see.

Rule: of what a real coordinator keeps beside `TransactionMetadata`, one flag is kept here: whether anything was added.
"""

from typing import NamedTuple

from protocol.types import ProducerEpoch, ProducerId
from txn.transaction import (
    AddToTransactionEvent,
    Decision,
    EndTransactionEvent,
    Event,
    ExpireTransactionEvent,
    ForceTerminate,
    InitProducerId,
    TransactionMetadata,
    TransactionVersion,
    VerifyInTransaction,
)
from txn.transaction_requests import TransactionalApi as Api
from txn.transaction_requests import answered_code, transaction_version
from txn.transitions import decide

PRODUCER = 40
OTHER = 777
"""A producer id that nobody has."""


class Step(NamedTuple):
    """A request from a producer with an epoch, or what the coordinator does by itself."""

    name: str
    version: int = 0
    epoch: int = -1
    producer_id: int = PRODUCER


def init(version: int = 4, epoch: int = -1, producer_id: int = PRODUCER) -> Step:
    return Step("init", version, epoch, producer_id if epoch >= 0 else -1)


def add(version: int = 3, epoch: int = 0, producer_id: int = PRODUCER) -> Step:
    return Step("add", version, epoch, producer_id)


def add_offsets(version: int = 3, epoch: int = 0, producer_id: int = PRODUCER) -> Step:
    return Step("add offsets", version, epoch, producer_id)


def produce(version: int = 9, epoch: int = 0, producer_id: int = PRODUCER) -> Step:
    return Step("produce", version, epoch, producer_id)


def offsets(version: int = 3, epoch: int = 0, producer_id: int = PRODUCER) -> Step:
    return Step("offsets", version, epoch, producer_id)


def commit(version: int = 3, epoch: int = 0, producer_id: int = PRODUCER) -> Step:
    return Step("commit", version, epoch, producer_id)


def abort(version: int = 3, epoch: int = 0, producer_id: int = PRODUCER) -> Step:
    return Step("abort", version, epoch, producer_id)


TIME_OUT = Step("time-out")
TOOL = Step("tool")
"""WriteTxnMarkers of kafka-transactions.sh."""


class Coordinator:
    """One transactional id, and whether something is in its transaction."""

    def __init__(self) -> None:
        self.metadata: TransactionMetadata | None = None
        self.is_added = False

    def answer(self, step: Step) -> tuple[int, ...]:
        api, event = self._event(step)
        decision = decide(self.metadata, event, ProducerId(PRODUCER))
        self._apply(decision, event)
        code = int(answered_code(api, step.version, decision.error_code))
        is_epoch_answered = api is Api.INIT_PRODUCER_ID or (api is Api.END_TXN and step.version >= 5)
        return (code, decision.epoch) if is_epoch_answered else (code,)

    def _apply(self, decision: Decision, event: Event) -> None:
        if decision.following is not None:
            self.metadata = decision.following
        if decision.is_beginning or decision.ending is not None:
            self.is_added = False
        if isinstance(event, AddToTransactionEvent) and not decision.error_code:
            self.is_added = True

    def _event(self, step: Step) -> tuple[Api, Event]:
        producer_id, epoch = ProducerId(step.producer_id), ProducerEpoch(step.epoch)
        match step.name:
            case "init":
                return Api.INIT_PRODUCER_ID, InitProducerId(timeout_ms=1, producer_id=producer_id, epoch=epoch)
            case "add" | "add offsets":
                api = Api.ADD_PARTITIONS_TO_TXN if step.name == "add" else Api.ADD_OFFSETS_TO_TXN
                version = transaction_version(api, step.version)
                return api, AddToTransactionEvent(producer_id=producer_id, epoch=epoch, version=version)
            case "produce" | "offsets":
                api = Api.PRODUCE if step.name == "produce" else Api.TXN_OFFSET_COMMIT
                version = transaction_version(api, step.version)
                if version is TransactionVersion.V2:
                    return api, AddToTransactionEvent(producer_id=producer_id, epoch=epoch, version=version)
                return api, VerifyInTransaction(producer_id=producer_id, epoch=epoch, is_added=self.is_added)
            case "time-out":
                assert self.metadata is not None
                now = self.metadata
                seen = ExpireTransactionEvent(producer_id=now.producer_id, epoch=now.epoch, serial=now.serial)
                return Api.WRITE_TXN_MARKERS, seen
            case "tool":
                assert self.metadata is not None
                now = self.metadata
                aborts = ForceTerminate(producer_id=now.producer_id, epoch=now.epoch, is_commit=False)
                return Api.WRITE_TXN_MARKERS, aborts
            case _:
                version = transaction_version(Api.END_TXN, step.version)
                is_commit = step.name == "commit"
                end = EndTransactionEvent(producer_id=producer_id, epoch=epoch, version=version, is_commit=is_commit)
                return Api.END_TXN, end
