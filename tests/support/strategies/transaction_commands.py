"""Commands of transactions, as Hypothesis draws them: few ids, producers and epochs, so that they often fit."""

from hypothesis import strategies as st

from coordinator.commands.transaction import (
    CommitTransactionalOffsets,
    ExpireTransaction,
    ExpireTransactionalIds,
    SetTransactionVersion,
    TerminateTransaction,
    TransactionCommand,
)
from protocol.types import Milliseconds, ProducerEpoch, ProducerId
from tests.support.commands.transaction_commands import add, begin, end, made_connection_epoch
from tests.support.strategies.group_commands import TOPICS
from txn.transaction import TransactionVersion

transactional_ids = st.sampled_from(["x", "y"])
producer_ids = st.integers(-1, 3)
epochs = st.integers(-1, 2)
versions = st.sampled_from(TransactionVersion)
connection_epochs = st.none() | st.tuples(st.integers(0, 20), st.integers(0, 3))

transaction_commands: st.SearchStrategy[TransactionCommand] = st.one_of(
    st.builds(begin, transactional_id=transactional_ids, producer=producer_ids, epoch=epochs),
    st.builds(
        lambda partition, topic_id, **fields: add(partition, topic_id=topic_id, **fields),
        st.integers(0, 3),
        st.sampled_from(TOPICS),
        transactional_id=transactional_ids,
        producer=producer_ids,
        epoch=epochs,
        groups=st.sampled_from([(), ("g",), ("g", "h")]),
        connection_epoch=connection_epochs,
    ),
    st.builds(
        end,
        is_commit=st.booleans(),
        version=versions,
        transactional_id=transactional_ids,
        producer=producer_ids,
        epoch=epochs,
        connection_epoch=connection_epochs,
    ),
    st.builds(
        ExpireTransaction,
        transactional_id=transactional_ids,
        producer_id=producer_ids.map(ProducerId),
        epoch=epochs.map(ProducerEpoch),
        serial=st.integers(0, 3),
    ),
    st.builds(
        TerminateTransaction,
        producer_id=producer_ids.map(ProducerId),
        epoch=epochs.map(ProducerEpoch),
        is_commit=st.booleans(),
    ),
    st.builds(ExpireTransactionalIds, cutoff_ms=st.integers(-5, 1_500).map(Milliseconds), ids_max=st.integers(0, 2)),
    st.builds(SetTransactionVersion, level=st.integers(0, 3)),
    st.builds(
        CommitTransactionalOffsets,
        group_id=st.sampled_from(["g", "h"]),
        claim_epoch=st.integers(1, 6),
        transactional_id=transactional_ids,
        producer_id=producer_ids.map(ProducerId),
        epoch=epochs.map(ProducerEpoch),
        version=versions,
        connection_epoch=connection_epochs.map(made_connection_epoch),
        topic_ids=st.just((TOPICS[0], TOPICS[1])),
        topic=st.just([0, 1]),
        partition=st.tuples(st.integers(0, 3), st.integers(0, 3)).map(list),
        offset=st.just([5, 6]),
        leader_epoch=st.just([-1, -1]),
        metadata=st.sampled_from([(), ("a", "b")]),
    ),
)
