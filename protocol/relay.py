"""Relayed requests, without I/O: which requests are relayed, what introduces a client, and its answers.

An agent that does not coordinate a group sends the group's request, as it came, over a relay connection to the agent
that does. So it does with a request about the configs of another agent, which names that agent's node id. Each client
connection has relay connections of its own. A relay connection begins with an `Introduction`,
which is answered with a text: empty, or why the client is rejected. Frames of requests and of answers follow, in order.

Rule: the first bytes of an introduction are no API of Kafka, so every other listener closes the connection.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from protocol.api_versions import ApiKey, range_of
from protocol.auth.principals import ANONYMOUS, GROUP, Principal
from protocol.connection import RequestFrame
from protocol.errors import MalformedRequest
from protocol.framing import FrameReceiver
from protocol.limits import RECEIVE_BUFFER_BYTES, RELAYED_ANSWER_BYTES_MAX
from protocol.types import Position, SessionId
from protocol.wire import (
    INT16,
    INT32,
    INT64,
    UNREADABLE,
    Buffer,
    pack_length,
    pack_string,
    read_array_length,
    read_length,
    read_nullable_string,
    read_string,
    read_tagged_fields,
)

OF_GROUPS: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    }
)
"""The requests that a group's coordinator alone can answer. ListGroups is answered from the state."""
CHANGING_OFFSETS: Final = frozenset(
    {ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.OFFSET_DELETE, ApiKey.DELETE_GROUPS}
)
"""The requests that change committed offsets, and may not be made long after their client has given them up."""
OF_NODES: Final = frozenset({ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
"""The requests that the agent alone can answer whose node id they name: no other one knows its settings and loggers."""
RELAYED: Final = OF_GROUPS | OF_NODES
_NODE_RESOURCES: Final = (4, 8)
"""The types of resources whose name is a node id: BROKER and BROKER_LOGGER (org.apache.kafka...ConfigResource.Type)."""
_ARRAYS_OF_GROUPS: Final = frozenset({ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE})
_FIRST_WITH_SEVERAL_GROUPS: Final = 8
"""The first version of OffsetFetch that has an array of groups (KIP-709)."""
_MAGIC: Final = b"\x7frly\x01"
"""Read as a request of Kafka it is the API 32626, which does not exist; the last byte is the format's version."""
_NO_EPOCH: Final = -1
_INT16_MAX: Final = (1 << 15) - 1


class ClientEpoch(NamedTuple):
    """The age of a client's connection, comparable between agents (safety rule S7)."""

    session: SessionId
    """The session of the agent that accepted the connection."""
    position: Position
    """The ledger's position when it was accepted, at least."""
    number: int
    """Rises with each connection that the agent accepted at the same position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """The client of a relay connection, as the agent knows it that the client is connected to."""

    agent: str
    """That agent's name, for logs."""
    listener: str
    """The name of the listener that accepted the client."""
    peer: str
    """The client's address, `host:port`."""
    principal: Principal = ANONYMOUS
    groups: tuple[Principal, ...] = ()
    mechanism: str = ""
    is_by_token: bool = False
    """Whether a delegation token proved the principal."""
    epoch: ClientEpoch | None = None
    """None where the connection has none: its V1 transactions get no answer."""

    @property
    def is_anonymous(self) -> bool:
        """Whether it says of the client nothing that gives rights."""
        return self.principal == ANONYMOUS and not (self.groups or self.mechanism or self.is_by_token)


def group_id_of(frame: RequestFrame) -> str | None:
    """The group of a request of `OF_GROUPS`, the first one where it has several; None where it cannot be read.

    The frame's body stays as it is.
    """
    row = range_of(frame.api_key)
    assert row is not None, f"API {frame.api_key} is served"
    is_flexible = row.is_flexible(frame.api_version)
    has_array = frame.api_key in _ARRAYS_OF_GROUPS or (
        frame.api_key == ApiKey.OFFSET_FETCH and frame.api_version >= _FIRST_WITH_SEVERAL_GROUPS
    )
    view, position = frame.body, 0
    try:
        if has_array:
            count, position = read_array_length(view, position, is_flexible=is_flexible)
            if not count:
                return None
        elif frame.api_key == ApiKey.TXN_OFFSET_COMMIT:
            _, position = read_string(view, position, is_flexible=is_flexible)  # the transactional id
        return read_string(view, position, is_flexible=is_flexible)[0]
    except (MalformedRequest, *UNREADABLE):
        return None


def node_name_of(frame: RequestFrame) -> str | None:
    """The node id, as text, whose configs or loggers a request of `OF_NODES` names, the first one where it has several.

    None where it names none, or cannot be read. The frame's body stays as it is. Takes time for large requests.
    Source: DescribeConfigsRequest.json, AlterConfigsRequest.json, IncrementalAlterConfigsRequest.json (Kafka 4.3).
    """
    row = range_of(frame.api_key)
    assert row is not None, f"API {frame.api_key} is served"
    is_flexible = row.is_flexible(frame.api_version)
    view, position = frame.body, 0
    try:
        count, position = read_array_length(view, position, is_flexible=is_flexible)
        for _ in range(count):
            resource_type = view[position]
            name, position = read_string(view, position + 1, is_flexible=is_flexible)
            if resource_type in _NODE_RESOURCES and name:
                return name
            position = _skip_configs(frame.api_key, view, position, is_flexible=is_flexible)
    except (MalformedRequest, *UNREADABLE):
        pass
    return None


def _skip_configs(api_key: int, view: memoryview, position: int, *, is_flexible: bool) -> int:
    """The position behind a resource, from the array of its configs on; of DescribeConfigs these are names."""
    count, position = read_length(view, position, is_flexible=is_flexible)  # null: all configs
    for _ in range(count):
        _, position = read_string(view, position, is_flexible=is_flexible)
        if api_key != ApiKey.DESCRIBE_CONFIGS:
            if api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
                position += 1  # the operation
            _, position = read_nullable_string(view, position, is_flexible=is_flexible)
            position = _skip_tags(view, position, is_flexible=is_flexible)
    return _skip_tags(view, position, is_flexible=is_flexible)


def _skip_tags(view: memoryview, position: int, *, is_flexible: bool) -> int:
    return read_tagged_fields(view, position)[1] if is_flexible else position


def encode_introduction(introduction: Introduction) -> bytes:
    """The frame of an introduction, with its size."""
    principal, epoch = introduction.principal, introduction.epoch
    texts = (
        introduction.agent,
        introduction.listener,
        introduction.peer,
        principal.kind,
        principal.name,
        introduction.mechanism,
    )
    session, position, number = (_NO_EPOCH, _NO_EPOCH, _NO_EPOCH) if epoch is None else epoch
    body = b"".join(
        [
            _MAGIC,
            *(pack_string(text, is_flexible=True) for text in texts),
            pack_length(len(introduction.groups), is_flexible=True),
            *(pack_string(group.name, is_flexible=True) for group in introduction.groups),
            introduction.is_by_token.to_bytes(),
            INT64.pack(session),
            INT64.pack(position),
            INT32.pack(number),
        ]
    )
    return INT32.pack(len(body)) + body


def decode_introduction(frame: memoryview) -> Introduction:
    """The introduction in a frame without its size. Raises `MalformedRequest`: close the connection."""
    if bytes(frame[: len(_MAGIC)]) != _MAGIC:
        raise MalformedRequest("it does not begin with an introduction of this version: the peer is no agent")
    try:
        return _read_introduction(frame)
    except UNREADABLE as error:
        raise MalformedRequest(f"an introduction of {len(frame)} bytes is cut off") from error


def _read_introduction(frame: memoryview) -> Introduction:
    position, texts = len(_MAGIC), list[str]()
    for _ in range(6):
        text, position = read_string(frame, position, is_flexible=True)
        texts.append(text)
    agent, listener, peer, kind, name, mechanism = texts
    count, position = read_array_length(frame, position, is_flexible=True)
    groups: list[Principal] = []
    for _ in range(count):
        group, position = read_string(frame, position, is_flexible=True)
        groups.append(Principal(GROUP, group))
    is_by_token = bool(frame[position])
    (session,), (at,) = INT64.unpack_from(frame, position + 1), INT64.unpack_from(frame, position + 9)
    (number,) = INT32.unpack_from(frame, position + 17)
    return Introduction(
        agent=agent,
        listener=listener,
        peer=peer,
        principal=Principal(kind, name),
        groups=tuple(groups),
        mechanism=mechanism,
        is_by_token=is_by_token,
        epoch=None if session < 0 else ClientEpoch(SessionId(session), Position(at), number),
    )


def encode_reply(rejection: str) -> bytes:
    """The frame that answers an introduction: why it is rejected, or "" where it is not."""
    body = pack_string(rejection, is_flexible=True)
    return INT32.pack(len(body)) + body


class RelayExchange:
    """One relay connection on the side of the client's agent. The shell sends the bytes and reads the socket."""

    __slots__ = ("_has_reply", "_pending", "_receiver")

    def __init__(self, *, answer_bytes_max: int = RELAYED_ANSWER_BYTES_MAX) -> None:
        self._receiver = FrameReceiver(
            frame_bytes_max=answer_bytes_max, buffer_bytes=RECEIVE_BUFFER_BYTES, is_roomy=False
        )
        self._has_reply = False
        self._pending: deque[int] = deque()
        """The correlation ids of the requests without answers."""

    @property
    def pending_count(self) -> int:
        """Requests without answers."""
        return len(self._pending)

    def send(self, frame: RequestFrame) -> list[Buffer]:
        """The bytes of a request, as its client sent it but for the header's tagged fields, which Kafka ignores."""
        row = range_of(frame.api_key)
        assert row is not None, f"API {frame.api_key} is served"
        self._pending.append(frame.correlation_id)
        # Replaced bytes of a client id that was not UTF-8 may have made it longer than its length can say.
        client_id = frame.client_id.encode()[:_INT16_MAX]
        header = b"".join(
            [
                INT16.pack(frame.api_key),
                INT16.pack(frame.api_version),
                INT32.pack(frame.correlation_id),
                INT16.pack(len(client_id)),
                client_id,
                b"\0" if row.is_flexible(frame.api_version) else b"",
            ]
        )
        return [INT32.pack(len(header) + len(frame.body)) + header, frame.body]

    def get_buffer(self) -> memoryview:
        """Where to put what arrives next."""
        return self._receiver.get_buffer()

    def buffer_updated(self, count: int) -> tuple[str | None, list[memoryview]]:
        """The reply to the introduction, where these bytes complete it, and the answers to the oldest requests.

        Raises `MalformedRequest` for bytes that no agent sends: close the connection.
        """
        frames, reply = self._receiver.buffer_updated(count), None
        if frames and not self._has_reply:
            self._has_reply = True
            reply = _read_reply(frames.pop(0))
        for frame in frames:
            if len(frame) < INT32.size or not self._pending:
                raise MalformedRequest(f"an answer of {len(frame)} bytes to no request")
            (correlation_id,) = INT32.unpack_from(frame)
            expected = self._pending.popleft()
            if correlation_id != expected:
                raise MalformedRequest(f"an answer to request {correlation_id}, and {expected} is next")
        return reply, frames


def _read_reply(frame: memoryview) -> str:
    try:
        return read_string(frame, 0, is_flexible=True)[0]
    except UNREADABLE as error:
        raise MalformedRequest("the reply to an introduction is cut off") from error
