"""Requests as a proxy reads them, from literal bytes."""

import struct

import pytest

from tests.jepsen.proxy.frame_bytes import END_TXN_V1, END_TXN_V3, PRODUCE_V9
from tests.jepsen.proxy.frames import (
    Api,
    EndTxn,
    ProxiedRequest,
    correlation_id_of,
    end_txn_error,
    first_partition,
    is_commit,
)

METADATA_V1 = bytes.fromhex("0003 0001 0000000a 0002 6131 ffffffff")


def test_an_end_txn_of_an_old_version_tells_whose_transaction_it_ends_and_how() -> None:
    request = ProxiedRequest.read(END_TXN_V1)
    assert (request.api_key, request.version, request.correlation_id) == (Api.END_TXN, 1, 7)
    assert (request.client_id, request.transactional_id) == ("a1", "t1")
    assert EndTxn.read(request) == EndTxn(producer_id=4000, epoch=3, is_commit=True)
    assert is_commit(request)


def test_a_flexible_version_says_the_same_in_compact_form() -> None:
    request = ProxiedRequest.read(END_TXN_V3)
    assert (request.client_id, request.transactional_id) == ("a1", "t1")
    assert EndTxn.read(request) == EndTxn(producer_id=4000, epoch=3, is_commit=False)
    assert not is_commit(request)


def test_a_request_outside_a_transaction_has_no_transactional_id() -> None:
    assert ProxiedRequest.read(PRODUCE_V9).transactional_id is None
    assert ProxiedRequest.read(PRODUCE_V9).client_id == ""
    assert ProxiedRequest.read(METADATA_V1).transactional_id is None


def test_a_body_that_cannot_be_read_passes_as_it_came() -> None:
    request = ProxiedRequest.read(END_TXN_V1[:13])
    assert request.transactional_id is None
    assert request.frame == END_TXN_V1[:13]


def test_what_is_shorter_than_a_header_is_no_request() -> None:
    with pytest.raises(struct.error):
        ProxiedRequest.read(END_TXN_V1[:9])


@pytest.mark.parametrize(
    ("frame", "partition"),
    [
        ("0018 0000 00000007 ffff 0002 7431 0000000000000fa0 0003 00000001 0001 61 00000001 00000002", 2),
        ("0018 0003 00000007 ffff 00 03 7431 0000000000000fa0 0003 02 02 61 02 00000003 00 00", 3),
        ("0000 0008 00000007 ffff 0002 7431 ffff 00000bb8 00000001 0001 61 00000001 00000004", 4),
        ("0000 000c 00000007 ffff 00 03 7431 ffff 00000bb8 02 02 61 02 00000005", 5),
        ("0000 000d 00000007 ffff 00 03 7431 ffff 00000bb8 02 000102030405060708090a0b0c0d0e0f 02 00000006", 6),
    ],
)
def test_the_first_partition_of_what_adds_or_writes_is_read_in_every_form(frame: str, partition: int) -> None:
    assert first_partition(ProxiedRequest.read(bytes.fromhex(frame))) == partition


@pytest.mark.parametrize(
    ("version", "answer"),
    [(1, bytes.fromhex("00000007 00000000 0030")), (3, bytes.fromhex("00000007 00 00000000 0030 00"))],
)
def test_the_answer_to_an_end_txn_tells_its_error(version: int, answer: bytes) -> None:
    assert correlation_id_of(answer) == 7
    assert end_txn_error(answer, version) == 48
