"""Produce with records in more than one compressed stream, with bytes behind a stream, and with one that is cut."""

from typing import Any

from tests.compat.protocol_diff.cases.pieces import fetch, offsets, produce, records, topic
from tests.compat.protocol_diff.compressed import STREAMS, Stream, cut, followed_by, halves, preceded_by
from tests.compat.protocol_diff.steps import Cases, Step

CASES = Cases()


def sent(codec: int, packed: Stream, **how: Any) -> list[Step]:
    return [*topic(), produce(records(4, compression=codec, packed=packed, **how)), offsets(-1), fetch(0)]


for name, (codec, stream) in STREAMS.items():
    CASES.add(f"streams.{name}", sent(codec, stream))
    CASES.add(f"streams.{name}-two", sent(codec, halves(stream)))
    CASES.add(f"streams.{name}-empty-behind", sent(codec, followed_by(stream, stream(b""))))
    CASES.add(f"streams.{name}-empty-before", sent(codec, preceded_by(stream, stream(b""))))
    CASES.add(f"streams.{name}-more-behind", sent(codec, followed_by(stream, stream(b"more"))))
    CASES.add(f"streams.{name}-garbage-behind", sent(codec, followed_by(stream, b"garbage!")))
    CASES.add(f"streams.{name}-a-byte-behind", sent(codec, followed_by(stream, b"g")))
    CASES.add(f"streams.{name}-zeros-behind", sent(codec, followed_by(stream, bytes(8))))
    CASES.add(f"streams.{name}-magic-behind", sent(codec, followed_by(stream, stream(b"more")[:4])))
    CASES.add(f"streams.{name}-cut", sent(codec, cut(stream, 1)))
    CASES.add(f"streams.{name}-cut-more", sent(codec, cut(stream, 5)))
    CASES.add(f"streams.{name}-bytes-behind-records", sent(codec, stream, behind=b"more"))
    CASES.add(f"streams.{name}-none", sent(codec, lambda data: b""))
CASES.add("streams.plain-bytes-behind-records", topic(), produce(records(4, behind=b"more")), offsets(-1), fetch(0))
CASES.add("streams.plain-a-byte-behind-records", topic(), produce(records(4, behind=b"\0")), offsets(-1), fetch(0))
