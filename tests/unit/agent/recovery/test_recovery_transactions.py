"""What comes back of transactions whose entries are lost: nothing that may have been aborted, and nobody goes on under
an epoch that somebody else may have had."""

from dataclasses import replace

from agent.bucket.cluster_identity import check_bucket
from coordinator.commands.commands import ChunkColumns, ChunksCommitted, Command
from coordinator.commands.transaction import TransactionDecided
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.recovery.state_recovery import PRODUCER_ID_BITS
from coordinator.state.state import ClusterState, PartitionState
from protocol.errors import ErrorCode
from protocol.types import ObjectNumber, Offset, PartitionIndex
from storage.chunk_format import ChunkParts, encode_object
from storage.object_store import ObjectStore
from storage.refs import intake_key
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.agent.recovery_clusters import ACCEPTING, TimedStore, recover, snapshot, state_of, wiped
from tests.support.agent.transactional_paths import in_transaction, values_batch
from tests.support.commands.commands import TOPIC, Chunk, commit, create
from tests.support.commands.transaction_commands import V1, add, begin, end
from tests.support.commands.transaction_commands import transactional as transactional_row


async def decided(parts: Parts, command: Command) -> None:
    outcome = await parts.ledger.propose(command)
    assert isinstance(outcome, TransactionDecided)
    assert outcome.error_code is ErrorCode.none


async def write(parts: Parts, number: int, *, sequence: int) -> None:
    """An intake object with one batch of the transaction, put and committed."""
    session = parts.ledger.session
    batch = in_transaction(values_batch([b"v"]), 0, 0, sequence)
    encoded = encode_object(
        session, ObjectNumber(number), [ChunkParts(topic_id=TOPIC, partition=PartitionIndex(0), parts=[batch])]
    )
    await parts.store.put(intake_key(session, ObjectNumber(number)), encoded.parts)
    row = replace(transactional_row(sequence, version=V1), size=len(batch))
    command = commit(number, Chunk(batches=[row]), session=session)
    chunks = ChunkColumns(topic=[0], partition=[0], byte_first=encoded.byte_firsts, batch_count=[1])
    outcome = await parts.ledger.propose(replace(command, chunks=chunks, object_bytes=encoded.object_bytes))
    assert isinstance(outcome, ChunksCommitted)
    assert list(outcome.error_codes) == [0]


async def transact(parts: Parts, number: int, *, sequence: int) -> None:
    await decided(parts, add(0))
    await write(parts, number, sequence=sequence)
    await decided(parts, end(version=V1))


async def lived(store: ObjectStore, *, is_open: bool, placement: str = "produce") -> MemoryLedger:
    """A ledger that was wiped. Its snapshot knows a committed transaction, and one that was open where that is said;
    after it one more record was written, and everything committed."""
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, store=store) as parts:
        await parts.ledger.propose(create(penstock_transaction_placement=placement))
        await decided(parts, begin())
        await transact(parts, 0, sequence=0)
        if is_open:
            await decided(parts, add(0))
            await write(parts, 1, sequence=1)
        await snapshot(parts)
        if not is_open:
            await decided(parts, add(0))
        await write(parts, 2, sequence=1 + is_open)
        await decided(parts, end(version=V1))
        ledger.core.expire(parts.ledger.session)
    return wiped()


def partition_of(state: ClusterState) -> PartitionState:
    found = state.partition(TOPIC, PartitionIndex(0))
    assert found is not None
    return found


async def test_batches_whose_transaction_has_no_known_end_are_left_out_and_somebody_must_accept_that() -> None:
    store = TimedStore()
    ledger = await lived(store, is_open=False)
    refused = await recover(ledger, store)
    assert not refused.is_carried_out
    report = await recover(ledger, store, ACCEPTING)
    assert report.is_carried_out
    (topic,) = report.topics
    assert (topic.of_transactions, topic.rejected, topic.records, report.transactions_aborted) == (1, 0, 0, 0)
    partition = partition_of(await state_of(ledger, store))
    assert (partition.log_end, partition.last_stable, partition.transactions) == (2, 2, None)


async def test_what_is_open_in_the_snapshot_is_aborted_though_it_may_have_been_committed() -> None:
    store = TimedStore()
    ledger = await lived(store, is_open=True)
    report = await recover(ledger, store, ACCEPTING)
    assert (report.transactions_aborted, [topic.of_transactions for topic in report.topics]) == (1, [1])
    partition = partition_of(await state_of(ledger, store))
    # The committed transaction with its marker, the aborted record, and its marker.
    assert (partition.log_end, partition.last_stable) == (4, 4)
    assert partition.transactions is not None
    assert [each.offset_first for each in partition.transactions.aborted_between(Offset(0), Offset(4))] == [2]


async def test_producers_begin_again_with_ids_that_nobody_had() -> None:
    store = TimedStore()
    ledger = await lived(store, is_open=True)
    await recover(ledger, store, ACCEPTING)
    async with running_parts(ledger, store=store) as parts:
        late = await parts.ledger.propose(end(version=V1))
        assert isinstance(late, TransactionDecided)
        assert late.error_code is ErrorCode.invalid_producer_id_mapping
        given = await parts.ledger.propose(begin())
        assert isinstance(given, TransactionDecided)
        assert (given.producer_id, given.epoch) == (1 << PRODUCER_ID_BITS, 0)


async def test_what_waited_for_its_commit_in_the_snapshot_is_let_go() -> None:
    store = TimedStore()
    ledger = await lived(store, is_open=True, placement="commit")
    report = await recover(ledger, store, ACCEPTING)
    assert report.transactions_aborted == 1
    state = await state_of(ledger, store)
    partition = partition_of(state)
    assert (partition.log_end, partition.unplaced_batches, partition.transactions) == (2, {}, None)
    assert len(state.objects) == 1
