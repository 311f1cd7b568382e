"""The meaning of versions and arguments of transactional requests: which protocol they speak, what is rejected at
sight, and which errors replace those that older clients do not know.

Rule: data and arithmetic of requests; nothing here knows what is remembered of a transactional id.

Source: KafkaApis, AddPartitionsToTxnManager.TransactionSupportedOperation and
TransactionCoordinator.handleInitProducerId (Kafka 4.3), KIP-588 for PRODUCER_FENCED, KIP-890 for TRANSACTION_ABORTABLE.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from protocol.errors import ErrorCode
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from txn.transaction import TransactionVersion


class TransactionalApi(IntEnum):
    """Numbers of the APIs whose answers come from `txn.transitions`."""

    PRODUCE = 0
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28


V2_VERSIONS: Final[Mapping[int, int]] = {
    TransactionalApi.PRODUCE: 12,
    TransactionalApi.END_TXN: 5,
    TransactionalApi.TXN_OFFSET_COMMIT: 5,
}
"""The first version of each API that speaks V2. ApiVersions lists all of them, or none."""

NEVER_GIVEN: Final = ProducerId((1 << 63) - 1)
"""A producer id that no producer has: ids are given in order, from 0 on."""

NO_VERSION: Final = 1 << 15
"""Beyond every version: the error is never answered."""

CLIENT_ERRORS: Final[Mapping[ErrorCode, tuple[ErrorCode, Mapping[int, int]]]] = {
    ErrorCode.producer_fenced: (
        ErrorCode.invalid_producer_epoch,
        {
            TransactionalApi.PRODUCE: NO_VERSION,
            TransactionalApi.INIT_PRODUCER_ID: 4,
            TransactionalApi.ADD_PARTITIONS_TO_TXN: 2,
            TransactionalApi.ADD_OFFSETS_TO_TXN: 2,
            TransactionalApi.END_TXN: 2,
            TransactionalApi.TXN_OFFSET_COMMIT: NO_VERSION,
        },
    ),
    ErrorCode.transaction_abortable: (
        ErrorCode.invalid_txn_state,
        {TransactionalApi.PRODUCE: 11, TransactionalApi.TXN_OFFSET_COMMIT: 4},
    ),
}
"""By error: the one that older versions answer instead, and the first version of each API that answers it."""


def transaction_version(api_key: int, version: int) -> TransactionVersion:
    """The protocol of a request in this version."""
    return TransactionVersion.V2 if version >= V2_VERSIONS.get(api_key, NO_VERSION) else TransactionVersion.V1


def answered_code(api_key: int, version: int, error_code: ErrorCode) -> ErrorCode:
    """The code that an answer of this version has for `error_code`, as `txn.transitions` gave it."""
    if error_code not in CLIENT_ERRORS:
        return error_code
    instead, first_versions = CLIENT_ERRORS[error_code]
    return error_code if version >= first_versions.get(api_key, 0) else instead


def check_init_producer_id(
    *,
    transactional_id: str | None,
    timeout_ms: int,
    timeout_ms_max: int,
    producer_id: int,
    epoch: int,
) -> ErrorCode:
    """The error of an InitProducerId by itself; `none` where nothing is.

    timeout_ms_max: transaction.max.timeout.ms. Without a transactional id neither time-out nor producer id mean
    anything: the answer is a fresh id.
    """
    if (producer_id == NO_PRODUCER_ID) != (epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.invalid_request
    if transactional_id is None:
        return ErrorCode.none
    if transactional_id == "":
        return ErrorCode.invalid_request
    if not 0 < timeout_ms <= timeout_ms_max:
        return ErrorCode.invalid_transaction_timeout
    return ErrorCode.none


def compared_producer(producer_id: int, epoch: int) -> tuple[ProducerId, ProducerEpoch]:
    """The producer id and epoch of a request for comparisons: below -1 as others that no producer has.

    Kafka's coordinator compares them alone (TransactionCoordinator, Kafka 4.3): INVALID_PRODUCER_ID_MAPPING for an id,
    INVALID_PRODUCER_EPOCH or PRODUCER_FENCED for an epoch, and in InitProducerId PRODUCER_FENCED for both. A ledger
    entry holds no such numbers.
    """
    return (
        ProducerId(producer_id) if producer_id >= NO_PRODUCER_ID else NEVER_GIVEN,
        ProducerEpoch(max(epoch, NO_PRODUCER_EPOCH)),
    )


def check_transactional_id(transactional_id: str) -> ErrorCode:
    """The error of the id in any other transactional request; `none` where nothing is."""
    return ErrorCode.none if transactional_id else ErrorCode.invalid_request
