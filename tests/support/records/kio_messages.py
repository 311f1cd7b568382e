"""What kio makes of a message: the oracle of the hand-written codecs."""

import io
import uuid
from datetime import timedelta
from types import ModuleType
from typing import Any

from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import Records, i64Timedelta

KioEntity = Any
"""A message of kio's, or a part of one, of any API and version."""

int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
st.register_type_strategy(Records, st.binary(max_size=300))
TIMEDELTA_MS_MAX = ((1 << 63) - 1) // 1000 - 1
"""Beyond it kio does not read what it wrote."""
st.register_type_strategy(
    i64Timedelta,
    st.integers(-TIMEDELTA_MS_MAX, TIMEDELTA_MS_MAX).map(lambda ms: i64Timedelta.parse(timedelta(milliseconds=ms))),
)
topic_id = st.binary(min_size=16, max_size=16)


def request_module(api_key: int, version: int) -> ModuleType:
    return load_payload_module(api_key, version, EntityType.request)


def response_module(api_key: int, version: int) -> ModuleType:
    return load_payload_module(api_key, version, EntityType.response)


def kio_write(entity: KioEntity) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_read(entity_type: type, data: bytes) -> KioEntity:
    """The entity; every byte must have been read."""
    entity: KioEntity
    entity, position = entity_reader(entity_type)(data, 0)
    assert position == len(data)
    return entity


def to_uuid(topic_id: bytes | None) -> uuid.UUID | None:
    """As kio shows an id: the zero id is None."""
    assert topic_id is not None
    return uuid.UUID(bytes=topic_id) if any(topic_id) else None


def to_timedelta(value_ms: int) -> timedelta:
    return timedelta(milliseconds=value_ms)


def made(entity_type: type[KioEntity], /, **values: object) -> KioEntity:
    """An entity from the values of all versions: those that its version lacks are left out."""
    known = entity_type.__dataclass_fields__
    return entity_type(**{name: value for name, value in values.items() if name in known})


def view_of(data: bytes) -> memoryview:
    """As a frame's body is: a view of writable memory."""
    return memoryview(bytearray(data))
