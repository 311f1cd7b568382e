"""Relayed requests: the group of a request, the introduction of a client, and the exchange of frames."""

import struct

import pytest

from protocol.api_versions import ApiKey, range_of
from protocol.auth.principals import ANONYMOUS, GROUP, USER, Principal
from protocol.connection import RequestFrame, ServerConnection, read_request_frame
from protocol.errors import MalformedRequest
from protocol.relay import (
    OF_GROUPS,
    OF_NODES,
    ClientEpoch,
    Introduction,
    RelayExchange,
    decode_introduction,
    encode_introduction,
    encode_reply,
    group_id_of,
    node_name_of,
)
from protocol.types import Position, SessionId
from protocol.wire import INT32, pack_length, pack_string
from tests.support.clients.kafka_requests import framed

ARRAYS = (ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE)
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
"""Types of config resources."""
CLIENT = Introduction(
    agent="a",
    listener="EXTERNAL",
    peer="10.0.0.7:5000",
    principal=Principal(USER, "CN=alice,O=Ünits"),
    groups=(Principal(GROUP, "g1"), Principal(GROUP, "g2")),
    mechanism="OAUTHBEARER",
    is_by_token=True,
    epoch=ClientEpoch(SessionId(7), Position(1 << 40), 3),
)


def request(api_key: int, version: int, body: bytes, *, correlation_id: int = 5, client_id: str = "c") -> RequestFrame:
    row = range_of(api_key)
    assert row is not None
    header = struct.pack(">hhi", api_key, version, correlation_id) + pack_string(client_id, is_flexible=False)
    header += b"\0" if row.is_flexible(version) else b""
    return read_request_frame(0, memoryview(header + body))


def body_of(api_key: ApiKey, version: int, group_id: str) -> bytes:
    """The first fields of a request, and something behind them."""
    row = range_of(api_key)
    assert row is not None
    is_flexible = row.is_flexible(version)
    group = pack_string(group_id, is_flexible=is_flexible)
    if api_key in ARRAYS or (api_key is ApiKey.OFFSET_FETCH and version >= 8):
        group = pack_length(2, is_flexible=is_flexible) + group + pack_string("other", is_flexible=is_flexible)
    if api_key is ApiKey.TXN_OFFSET_COMMIT:
        group = pack_string("transactional", is_flexible=is_flexible) + group
    return group + b"what follows"


def versions(api_keys: frozenset[ApiKey]) -> list[tuple[ApiKey, int]]:
    rows = [(api_key, range_of(api_key)) for api_key in sorted(api_keys)]
    return [
        (api_key, version)
        for api_key, row in rows
        if row is not None
        for version in range(row.version_served_min, row.version_max + 1)
    ]


class TestTheGroupOfARequest:
    @pytest.mark.parametrize(("api_key", "version"), versions(OF_GROUPS))
    def test_it_is_read_in_every_version(self, api_key: ApiKey, version: int) -> None:
        frame = request(api_key, version, body_of(api_key, version, "grüppe"))
        body = bytes(frame.body)
        assert group_id_of(frame) == "grüppe"
        assert bytes(frame.body) == body

    @pytest.mark.parametrize(
        ("api_key", "version", "body"),
        [
            (ApiKey.HEARTBEAT, 4, b""),
            (ApiKey.HEARTBEAT, 4, b"\x00"),
            (ApiKey.HEARTBEAT, 0, b"\x00\x02\xff\xfe"),
            (ApiKey.HEARTBEAT, 0, b"\x00\x20ab"),
            (ApiKey.DELETE_GROUPS, 2, b"\x01"),
            (ApiKey.DELETE_GROUPS, 2, b"\x00"),
            (ApiKey.TXN_OFFSET_COMMIT, 3, b"\x02a"),
        ],
    )
    def test_a_request_without_a_group_that_can_be_read_is_left_to_this_agent(
        self, api_key: ApiKey, version: int, body: bytes
    ) -> None:
        assert group_id_of(request(api_key, version, body)) is None


def about(*named: tuple[int, str], api_key: ApiKey, version: int) -> RequestFrame:
    """A request about the configs of these resources, by type and name: all of them, or two."""
    resources: list[dict[str, object]] = []
    for number, (kind, name) in enumerate(named):
        resource: dict[str, object] = {"resource_type": kind, "resource_name": name}
        if api_key is ApiKey.DESCRIBE_CONFIGS:
            resource["configuration_keys"] = None if number % 2 else ["a", "b"]
        else:
            pairs = [("a", None), ("b", "1")]
            resource["configs"] = [{"name": key, "value": value, "config_operation": 1} for key, value in pairs]
        resources.append(resource)
    values = {"resources": resources, "validate_only": False}
    return read_request_frame(0, memoryview(framed(api_key, version, values))[4:])


@pytest.mark.parametrize(("api_key", "version"), versions(OF_NODES))
class TestTheNodeOfARequest:
    @pytest.mark.parametrize("kind", [BROKER, BROKER_LOGGER])
    def test_it_is_read_in_every_version_behind_other_resources(self, api_key: ApiKey, version: int, kind: int) -> None:
        frame = about((TOPIC, "1"), (BROKER, ""), (TOPIC, "t"), (kind, "7"), api_key=api_key, version=version)
        body = bytes(frame.body)
        assert node_name_of(frame) == "7"
        assert bytes(frame.body) == body

    def test_other_resources_name_none(self, api_key: ApiKey, version: int) -> None:
        assert node_name_of(about((TOPIC, "1"), (BROKER, ""), api_key=api_key, version=version)) is None
        assert node_name_of(about(api_key=api_key, version=version)) is None

    def test_what_is_cut_off_names_none_and_raises_nothing(self, api_key: ApiKey, version: int) -> None:
        frame = about((TOPIC, "t"), (BROKER, "7"), api_key=api_key, version=version)
        body, names = frame.body, []
        for end in range(len(body)):
            frame.body = body[:end]
            names.append(node_name_of(frame))
        # Whole, or cut off behind the name: then the named agent finds the request malformed.
        assert set(names) == {None, "7"}


class TestIntroductions:
    @pytest.mark.parametrize("introduction", [CLIENT, Introduction(agent="", listener="L", peer="?:0")])
    def test_they_are_read_as_they_were_written(self, introduction: Introduction) -> None:
        frame = encode_introduction(introduction)
        assert INT32.unpack_from(frame)[0] == len(frame) - 4
        assert decode_introduction(memoryview(frame)[4:]) == introduction

    def test_every_other_listener_closes_the_connection(self) -> None:
        with pytest.raises(MalformedRequest):
            ServerConnection().receive_data(encode_introduction(CLIENT))

    def test_what_is_cut_off_is_rejected_at_each_byte(self) -> None:
        frame = encode_introduction(CLIENT)[4:]
        for end in range(len(frame)):
            with pytest.raises(MalformedRequest):
                decode_introduction(memoryview(frame)[:end])

    def test_another_version_is_rejected(self) -> None:
        frame = bytearray(encode_introduction(CLIENT)[4:])
        frame[4] = 2
        with pytest.raises(MalformedRequest, match="no agent"):
            decode_introduction(memoryview(frame))

    @pytest.mark.parametrize(
        ("introduction", "is_anonymous"),
        [
            (Introduction(agent="a", listener="L", peer="p:1"), True),
            (Introduction(agent="a", listener="L", peer="p:1", principal=Principal(USER, "x")), False),
            (Introduction(agent="a", listener="L", peer="p:1", groups=(Principal(GROUP, "g"),)), False),
            (Introduction(agent="a", listener="L", peer="p:1", mechanism="PLAIN"), False),
            (Introduction(agent="a", listener="L", peer="p:1", is_by_token=True), False),
        ],
    )
    def test_anonymous_is_one_that_says_nothing_that_gives_rights(
        self, introduction: Introduction, is_anonymous: bool
    ) -> None:
        assert introduction.is_anonymous is is_anonymous
        assert Introduction(agent="a", listener="L", peer="p:1").principal == ANONYMOUS


def receive(exchange: RelayExchange, data: bytes) -> tuple[str | None, list[bytes]]:
    exchange.get_buffer()[: len(data)] = data
    reply, frames = exchange.buffer_updated(len(data))
    return reply, [bytes(frame) for frame in frames]


def answer(correlation_id: int, body: bytes = b"") -> bytes:
    return INT32.pack(4 + len(body)) + INT32.pack(correlation_id) + body


class TestExchanging:
    @pytest.mark.parametrize(("api_key", "version"), versions(OF_GROUPS))
    def test_the_coordinator_reads_the_request_as_its_client_sent_it(self, api_key: ApiKey, version: int) -> None:
        frame = request(api_key, version, b"body", client_id="klient-ü")
        (relayed,) = ServerConnection().receive_data(b"".join(RelayExchange().send(frame)))
        assert (relayed.api_key, relayed.api_version) == (api_key, version)
        assert (relayed.correlation_id, relayed.client_id) == (5, "klient-ü")
        assert bytes(relayed.body) == b"body"

    def test_a_client_id_that_grew_as_its_bytes_were_replaced_is_cut(self) -> None:
        frame = request(ApiKey.HEARTBEAT, 0, b"body")
        frame.client_id = "\ufffd" * 32_767
        (relayed,) = ServerConnection().receive_data(b"".join(RelayExchange().send(frame)))
        assert bytes(relayed.body) == b"body"

    def test_answers_come_behind_the_reply_in_the_order_of_the_requests(self) -> None:
        exchange = RelayExchange()
        for correlation_id in (5, 6):
            exchange.send(request(ApiKey.HEARTBEAT, 4, b"", correlation_id=correlation_id))
        assert exchange.pending_count == 2
        assert receive(exchange, encode_reply("") + answer(5, b"one")[:6]) == ("", [])
        assert receive(exchange, answer(5, b"one")[6:] + answer(6)) == (None, [b"\0\0\0\5one", b"\0\0\0\6"])
        assert exchange.pending_count == 0

    def test_a_rejection_is_a_text(self) -> None:
        assert receive(RelayExchange(), encode_reply("no rights: é")) == ("no rights: é", [])

    @pytest.mark.parametrize("data", [answer(6), answer(5) + answer(5), INT32.pack(2) + b"\0\0", INT32.pack(-1)])
    def test_what_answers_no_request_is_rejected(self, data: bytes) -> None:
        exchange = RelayExchange()
        receive(exchange, encode_reply(""))
        exchange.send(request(ApiKey.HEARTBEAT, 4, b"", correlation_id=5))
        with pytest.raises(MalformedRequest):
            receive(exchange, data)

    def test_a_reply_that_is_no_text_is_rejected(self) -> None:
        with pytest.raises(MalformedRequest, match="cut off"):
            receive(RelayExchange(), INT32.pack(0))
