"""Transactions and reads of one ledger in etcd, guarded against another ledger under the same keys (safety rule S9).

In: the operations of a transaction. Out: their results, if this is still the ledger that was opened: each transaction
carries the guards of `coordinator.ledger.etcd.lineage`, which raises `LedgerCorrupt` otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aetcd.rpc import rpc_pb2

from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.lineage import Lineage


@dataclass(frozen=True, slots=True)
class GuardedResult:
    """The result of a guarded transaction. `responses` are those of its failure branch, where the guards failed."""

    is_done: bool
    revision: int
    responses: Sequence[rpc_pb2.ResponseOp]


class GuardedRequests:
    """Sends the requests of one ledger."""

    def __init__(self, client: EtcdClient, lineage: Lineage) -> None:
        self._client = client
        self._lineage = lineage

    async def write(
        self,
        *,
        success: Sequence[rpc_pb2.RequestOp],
        compare: Sequence[rpc_pb2.Compare] = (),
        failure: Sequence[rpc_pb2.RequestOp] = (),
        is_repeatable: bool = False,
    ) -> GuardedResult:
        """Carry out `success`, if this is still the ledger that was opened and `compare` holds, else ask `failure`.

        `is_repeatable`: as `EtcdClient.txn` has it.
        """
        lineage = self._lineage
        identity, seen = lineage.identity, lineage.seen
        answer = await self._client.txn(
            rpc_pb2.TxnRequest(
                compare=[*lineage.guards(), *compare], success=success, failure=[*lineage.asking(), *failure]
            ),
            is_repeatable=is_repeatable,
        )
        if answer.succeeded:
            return GuardedResult(is_done=True, revision=answer.header.revision, responses=())
        lineage.judge(answer.responses[:2], seen)
        lineage.judge_open(answer.responses[:2])
        if lineage.identity != identity:  # a bucket was claimed meanwhile: that alone may be why it was not carried out
            return await self.write(success=success, compare=compare, failure=failure, is_repeatable=is_repeatable)
        return GuardedResult(is_done=False, revision=answer.header.revision, responses=answer.responses[2:])

    async def read(self, requests: Sequence[rpc_pb2.RequestOp]) -> Sequence[rpc_pb2.ResponseOp]:
        """The answers to `requests` at one revision, of the ledger that was opened."""
        seen = self._lineage.seen
        answer = await self._client.txn(rpc_pb2.TxnRequest(success=[*self._lineage.asking(), *requests]))
        self._lineage.judge(answer.responses[:2], seen)
        return answer.responses[2:]

    async def range(self, key: bytes, end: bytes = b"", **options: int) -> rpc_pb2.RangeResponse:
        """The keys from `key` to before `end`, without a guard. `options`: other fields of etcd's RangeRequest."""
        return await self._client.range(rpc_pb2.RangeRequest(key=key, range_end=end, **options))
