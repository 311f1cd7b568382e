"""Ranges of the numbers and lengths of the bytes in ledger entries, as `coordinator.codec.command_wire` has them
checked."""

from typing import Annotated

from msgspec import Meta

Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Positive = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
Index = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Signed32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Timestamp = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Uuid = Annotated[bytes, Meta(min_length=16, max_length=16)]
Shape = Annotated[bytes, Meta(min_length=8, max_length=8)]
Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
