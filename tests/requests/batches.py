"""Record batches that are mostly right: checksums fit, sequences go on, and one thing may be odd."""

import random
import struct
from typing import Any

from protocol.records.batch import encode_varint
from protocol.records.compression import Compression, compress
from tests.requests.response_ids import Learnt, Producer
from tests.support.records.record_batches import HandMade

TRANSACTIONAL, CONTROL, APPEND_TIME = 0x10, 0x20, 0x08
INT16, INT32, INT64 = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1
TIMESTAMPS = (-1, 0, 1, 1_700_000_000_000, 4_000_000_000_000, INT64, -(1 << 63), -2)
BLOBS = (None, b"", b"k", b"v" * 300, b"\xff\xfe\xf0", b"\x00" * 40, b'{"a": 1}', b"\x00\x00\x00\x00\x01abc")


def make_batch(dice: random.Random, learnt: Learnt, producer: Producer | None, topic: str, partition: int) -> bytes:
    """One batch for a partition, of `producer` where there is one."""
    count = dice.choice((1, 1, 2, 3, 12, 60))
    base_timestamp = dice.choice(TIMESTAMPS) if dice.random() < 0.2 else 1_700_000_000_000
    is_control = dice.random() < 0.05
    records = _control_record(dice) if is_control else b"".join(_record(dice, n) for n in range(count))
    count = 1 if is_control else count
    codec = dice.choice(tuple(Compression)) if dice.random() < 0.4 else Compression.NONE
    attributes = int(codec) | (CONTROL if is_control else 0)
    if dice.random() < 0.02:
        attributes = dice.randrange(1 << 15)
    values: dict[str, Any] = {
        "records": bytes(compress(codec, records)),
        "record_count": count,
        "attributes": attributes,
        "base_timestamp": base_timestamp,
        "max_timestamp": base_timestamp if dice.random() < 0.8 else dice.choice(TIMESTAMPS),
    }
    if producer is not None:
        is_transactional = producer.transactional_id is not None and dice.random() < 0.95
        values["attributes"] |= TRANSACTIONAL if is_transactional else 0
        values["producer_id"], values["producer_epoch"] = producer.producer_id, producer.epoch
        values["base_sequence"] = learnt.sequence(producer, topic, partition, count)
    if dice.random() < 0.15:
        values |= _odd(dice, count)
    batch = HandMade(**values).encode()
    if dice.random() < 0.04:
        changed = bytearray(batch)
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
        return bytes(changed)
    return batch * 2 if dice.random() < 0.01 else batch


def _odd(dice: random.Random, count: int) -> dict[str, int | bytes]:
    match dice.randrange(9):
        case 0:
            return {"producer_id": dice.choice((-2, -(1 << 63), INT64, 0))}
        case 1:
            return {"producer_epoch": dice.choice((-2, -(1 << 15), INT16, 0))}
        case 2:
            return {"base_sequence": dice.choice((-2, -(1 << 31), INT32, INT32 - count, 0, 5))}
        case 3:
            return {"record_count": dice.choice((0, -1, count + 1, INT32))}
        case 4:
            return {"last_offset_delta": dice.choice((-1, count, INT32, -(1 << 31)))}
        case 5:
            return {"base_offset": dice.choice((-1, 7, INT64, -(1 << 63)))}
        case 6:
            return {"max_timestamp": dice.choice(TIMESTAMPS)}
        case 7:
            return {"magic": dice.choice((0, 1, 3, -1))}
        case _:
            return {"length": dice.choice((0, -1, 13, INT32))}


def _record(dice: random.Random, number: int) -> bytes:
    headers = [
        (dice.choice((b"h", b"", b"\xff\xfe\xf0")), dice.choice(BLOBS)) for _ in range(dice.choice((0, 0, 1, 3)))
    ]
    body = b"\0" + encode_varint(dice.choice((0, number, 5))) + encode_varint(number)
    body += _blob(dice.choice(BLOBS)) + _blob(dice.choice(BLOBS)) + encode_varint(len(headers))
    body += b"".join(_blob(key) + _blob(value) for key, value in headers)
    return encode_varint(len(body)) + body


def _control_record(dice: random.Random) -> bytes:
    """What a marker looks like, which no client may write."""
    key = struct.pack(">hh", dice.choice((0, 0, 1, -1)), dice.choice((0, 1, 3, 99)))
    value = struct.pack(">hi", 0, dice.choice((0, -1, INT32)))
    body = b"\0" + encode_varint(0) + encode_varint(0) + _blob(key) + _blob(value) + encode_varint(0)
    return encode_varint(len(body)) + body


def _blob(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data
