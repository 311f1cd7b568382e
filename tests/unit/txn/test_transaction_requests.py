"""Versions, arguments and error codes of transactional requests, as Apache Kafka 4.3.1 was seen to have them."""

import pytest

from protocol.errors import ErrorCode
from txn.transaction import TransactionVersion
from txn.transaction_requests import (
    TransactionalApi,
    answered_code,
    check_init_producer_id,
    check_transactional_id,
    compared_producer,
    transaction_version,
)

V1, V2 = TransactionVersion.V1, TransactionVersion.V2
FENCED, EPOCH = ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch
ABORTABLE, STATE = ErrorCode.transaction_abortable, ErrorCode.invalid_txn_state


@pytest.mark.parametrize(
    ("api", "version", "speaks"),
    [
        (TransactionalApi.PRODUCE, 3, V1),
        (TransactionalApi.PRODUCE, 11, V1),
        (TransactionalApi.PRODUCE, 12, V2),
        (TransactionalApi.PRODUCE, 13, V2),
        (TransactionalApi.END_TXN, 4, V1),
        (TransactionalApi.END_TXN, 5, V2),
        (TransactionalApi.TXN_OFFSET_COMMIT, 4, V1),
        (TransactionalApi.TXN_OFFSET_COMMIT, 5, V2),
        (TransactionalApi.ADD_PARTITIONS_TO_TXN, 5, V1),
        (TransactionalApi.ADD_OFFSETS_TO_TXN, 4, V1),
        (TransactionalApi.INIT_PRODUCER_ID, 5, V1),
    ],
)
def test_the_version_of_a_request_says_which_protocol_it_speaks(
    api: TransactionalApi, version: int, speaks: TransactionVersion
) -> None:
    assert transaction_version(api, version) == speaks


@pytest.mark.parametrize(
    ("api", "version", "error", "told"),
    [
        (TransactionalApi.PRODUCE, 9, FENCED, EPOCH),
        (TransactionalApi.PRODUCE, 13, FENCED, EPOCH),
        (TransactionalApi.TXN_OFFSET_COMMIT, 3, FENCED, EPOCH),
        (TransactionalApi.TXN_OFFSET_COMMIT, 5, FENCED, EPOCH),
        (TransactionalApi.INIT_PRODUCER_ID, 3, FENCED, EPOCH),
        (TransactionalApi.INIT_PRODUCER_ID, 4, FENCED, FENCED),
        (TransactionalApi.ADD_PARTITIONS_TO_TXN, 1, FENCED, EPOCH),
        (TransactionalApi.ADD_PARTITIONS_TO_TXN, 2, FENCED, FENCED),
        (TransactionalApi.ADD_OFFSETS_TO_TXN, 1, FENCED, EPOCH),
        (TransactionalApi.ADD_OFFSETS_TO_TXN, 2, FENCED, FENCED),
        (TransactionalApi.END_TXN, 1, FENCED, EPOCH),
        (TransactionalApi.END_TXN, 2, FENCED, FENCED),
        (TransactionalApi.PRODUCE, 10, ABORTABLE, STATE),
        (TransactionalApi.PRODUCE, 11, ABORTABLE, ABORTABLE),
        (TransactionalApi.TXN_OFFSET_COMMIT, 3, ABORTABLE, STATE),
        (TransactionalApi.TXN_OFFSET_COMMIT, 4, ABORTABLE, ABORTABLE),
        (TransactionalApi.ADD_PARTITIONS_TO_TXN, 4, ABORTABLE, ABORTABLE),
        (TransactionalApi.END_TXN, 0, STATE, STATE),
        (TransactionalApi.PRODUCE, 3, ErrorCode.none, ErrorCode.none),
        (TransactionalApi.WRITE_TXN_MARKERS, 1, EPOCH, EPOCH),
    ],
)
def test_an_error_is_reported_in_words_that_the_version_knows(
    api: TransactionalApi, version: int, error: ErrorCode, told: ErrorCode
) -> None:
    assert answered_code(api, version, error) == told


def init(
    transactional_id: str | None = "x", *, timeout_ms: int = 60_000, producer_id: int = -1, epoch: int = -1
) -> ErrorCode:
    return check_init_producer_id(
        transactional_id=transactional_id,
        timeout_ms=timeout_ms,
        timeout_ms_max=900_000,
        producer_id=producer_id,
        epoch=epoch,
    )


class TestInitProducerId:
    @pytest.mark.parametrize("transactional_id", ["x", None])
    def test_producer_id_and_epoch_come_together(self, transactional_id: str | None) -> None:
        assert init(transactional_id, producer_id=1, epoch=-1) == ErrorCode.invalid_request
        assert init(transactional_id, producer_id=-1, epoch=0) == ErrorCode.invalid_request
        assert init(transactional_id, producer_id=1, epoch=0) == ErrorCode.none

    @pytest.mark.parametrize(
        ("timeout_ms", "error"),
        [
            (-1, ErrorCode.invalid_transaction_timeout),
            (0, ErrorCode.invalid_transaction_timeout),
            (1, ErrorCode.none),
            (900_000, ErrorCode.none),
            (900_001, ErrorCode.invalid_transaction_timeout),
        ],
    )
    def test_a_time_out_is_positive_and_not_above_the_brokers(self, timeout_ms: int, error: ErrorCode) -> None:
        assert init(timeout_ms=timeout_ms) == error

    def test_without_a_transactional_id_the_time_out_means_nothing(self) -> None:
        assert init(None, timeout_ms=0) == ErrorCode.none

    def test_a_transactional_id_is_not_empty(self) -> None:
        assert init("") == ErrorCode.invalid_request


def test_every_other_request_names_a_transactional_id() -> None:
    assert check_transactional_id("") == ErrorCode.invalid_request
    assert check_transactional_id("x") == ErrorCode.none


def test_producers_below_none_are_compared_as_others_that_there_are_not() -> None:
    assert compared_producer(0, 0) == (0, 0)
    assert compared_producer(7, 32_767) == (7, 32_767)
    assert compared_producer(-1, -1) == (-1, -1)
    for below in (-2, -(1 << 63)):
        assert compared_producer(below, 3) == ((1 << 63) - 1, 3)
    for below in (-2, -(1 << 15)):
        assert compared_producer(7, below) == (7, -1)
