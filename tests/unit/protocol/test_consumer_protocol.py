"""Subscriptions and assignments of classic consumers, from literal bytes and as Kafka's schemas write them."""

import io
import struct

import pytest
from kio.schema.consumer_protocol_assignment.v3.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_assignment.v3.data import TopicPartition as AssignedTopic
from kio.schema.consumer_protocol_subscription.v3.data import ConsumerProtocolSubscription
from kio.schema.consumer_protocol_subscription.v3.data import TopicPartition as OwnedTopic
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32

from protocol.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    NotConsumerProtocol,
    read_assignment,
    read_subscribed_topics,
    read_subscription,
    write_assignment,
)

V0 = bytes.fromhex("0000 00000002 0001 74 0001 75 ffffffff".replace(" ", ""))
V1 = bytes.fromhex("0001 00000001 0001 74 00000001 ff 00000001 0001 74 00000002 00000000 00000003".replace(" ", ""))


class TestSubscriptions:
    def test_version_0_has_topics(self) -> None:
        assert read_subscription(V0) == ConsumerSubscription(version=0, topics=("t", "u"))

    def test_version_1_has_what_the_member_owns(self) -> None:
        assert read_subscription(V1) == ConsumerSubscription(version=1, topics=("t",), owned=(("t", (0, 3)),))

    @pytest.mark.parametrize("version", [3, 9])
    def test_version_3_has_a_rack_and_later_ones_are_read_as_it(self, version: int) -> None:
        out = io.BytesIO()
        entity_writer(ConsumerProtocolSubscription)(
            out,
            ConsumerProtocolSubscription(
                topics=("t",),
                user_data=None,
                owned_partitions=(OwnedTopic(topic=TopicName("t"), partitions=(i32(1),)),),
                generation_id=i32(5),
                rack_id="r",
            ),
        )
        found = read_subscription(version.to_bytes(2, "big") + out.getvalue())
        assert found == ConsumerSubscription(version=3, topics=("t",), owned=(("t", (1,)),), generation=5, rack="r")

    @pytest.mark.parametrize("damaged", [b"", b"part", V0[:-1], b"\xff\xff" + V0[2:], V1[:-1], b"\0\0\xff\xff\xff\xff"])
    def test_what_is_none_is_said_so(self, damaged: bytes) -> None:
        with pytest.raises(NotConsumerProtocol):
            read_subscription(damaged)


class TestAssignments:
    def test_no_bytes_are_nothing(self) -> None:
        assert read_assignment(b"") == ConsumerAssignment(partitions=())

    def test_what_is_written_is_read(self) -> None:
        written = write_assignment({"u": [2], "t": [0, 1]}, 9)
        assert written[:2] == b"\0\3"
        assert read_assignment(written) == ConsumerAssignment(partitions=(("t", (0, 1)), ("u", (2,))))

    def test_it_is_written_as_kafka_writes_it(self) -> None:
        out = io.BytesIO()
        entity = ConsumerProtocolAssignment(
            assigned_partitions=(AssignedTopic(topic=TopicName("t"), partitions=(i32(0), i32(1))),), user_data=None
        )
        entity_writer(ConsumerProtocolAssignment)(out, entity)
        assert write_assignment({"t": [0, 1]}, 3) == b"\0\3" + out.getvalue()

    def test_an_assignors_own_data_is_kept_apart(self) -> None:
        data = write_assignment({}, 0)[:-4] + b"\0\0\0\2ab"
        assert read_assignment(data) == ConsumerAssignment(partitions=(), user_data=b"ab")

    @pytest.mark.parametrize("damaged", [b"part", b"\0", b"\0\0\0\0\0\1"])
    def test_what_is_none_is_said_so(self, damaged: bytes) -> None:
        with pytest.raises(NotConsumerProtocol):
            read_assignment(damaged)


FIRST_FIELDS = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
"""Of a subscription to the topic `t`."""


class TestSubscribedTopics:
    @pytest.mark.parametrize(
        ("metadata", "topics"),
        [
            (FIRST_FIELDS, {"t"}),
            (b"\0\3" + FIRST_FIELDS[2:] + b"what no version adds", {"t"}),
            (b"\0\0\0\0\0\2\0\1a\0\2bc\0\0\0\3xyz", {"a", "bc"}),
            (b"\0\0\0\0\0\0\xff\xff\xff\xff", set()),
        ],
    )
    def test_they_are_read_whatever_is_behind_what_every_version_has(self, metadata: bytes, topics: set[str]) -> None:
        assert set(read_subscribed_topics(metadata)) == topics

    @pytest.mark.parametrize(
        "metadata",
        [
            *(FIRST_FIELDS[:length] for length in range(len(FIRST_FIELDS))),
            b"\xff\xff" + FIRST_FIELDS[2:],
            b"\0\0" + struct.pack(">i", -1) + b"\xff\xff\xff\xff",
            b"\0\0" + struct.pack(">i", 1 << 30) + b"\0\1t",
            b"\0\0\0\0\0\1\xff\xff\xff\xff\xff\xff",
            b"\0\0\0\0\0\1\0\1\xff\xff\xff\xff\xff",
            b"\0\0\0\0\0\1\0\1t\0\0\0\4abc",
        ],
    )
    def test_what_is_no_subscription_is_refused(self, metadata: bytes) -> None:
        with pytest.raises(NotConsumerProtocol):
            read_subscribed_topics(metadata)
