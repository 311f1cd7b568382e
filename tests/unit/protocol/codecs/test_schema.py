"""The fields of messages as kio's dataclasses declare them."""

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from kio.schema.fetch.v12.response import PartitionData
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.metadata.v12.response import MetadataResponse

from protocol.codecs.schema import REQUIRED, structure_schema


def test_fields_in_order_with_types_and_defaults() -> None:
    schema = structure_schema(HeartbeatRequest)
    assert (schema.name, schema.is_flexible, schema.is_fixed) == ("HeartbeatRequest", True, False)
    assert [(each.name, each.kafka_type, each.is_nullable, each.default) for each in schema.plain_fields] == [
        ("group_id", "string", False, REQUIRED),
        ("generation_id", "int32", False, REQUIRED),
        ("member_id", "string", False, REQUIRED),
        ("group_instance_id", "string", True, None),
    ]
    assert [each.fixed_format for each in schema.fields] == [None, "i", None, None]


def test_arrays_of_structures_and_of_numbers() -> None:
    fields = {each.name: each for each in structure_schema(MetadataResponse).fields}
    topics = fields["topics"]
    assert topics.is_array
    assert topics.structure is not None
    (partitions,) = (each for each in topics.structure.fields if each.name == "partitions")
    assert partitions.structure is not None
    replicas = next(each for each in partitions.structure.fields if each.name == "replica_nodes")
    assert (replicas.is_array, replicas.fixed_format, replicas.element.fixed_format) == (True, None, "i")


def test_tagged_fields_in_the_order_of_their_tags_with_structures_as_mappings() -> None:
    tagged = structure_schema(PartitionData).tagged_fields
    assert [(tag, each.name) for tag, each in tagged] == [
        (0, "diverging_epoch"),
        (1, "current_leader"),
        (2, "snapshot_id"),
    ]
    assert tagged[0][1].default == {"epoch": -1, "end_offset": -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class NullableNumber:
    __flexible__: ClassVar[bool] = True
    number: int | None = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TagWithoutDefault:
    __flexible__: ClassVar[bool] = True
    number: int = field(metadata={"kafka_type": "int32", "tag": 0})


@pytest.mark.parametrize("entity_type", [NullableNumber, TagWithoutDefault])
def test_what_no_message_of_kafka_has_is_no_schema(entity_type: type) -> None:
    with pytest.raises(AssertionError, match="number"):
        structure_schema(entity_type)
