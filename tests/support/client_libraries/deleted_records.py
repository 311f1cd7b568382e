"""DeleteRecords by confluent-kafka."""

from collections.abc import Mapping

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.client_libraries.interface import Place


def delete_records(bootstrap: str, offsets: Mapping[Place, int]) -> dict[Place, int]:
    """Deletes the records before these offsets; the new low watermarks. Raises `KafkaException`."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    futures = admin.delete_records([TopicPartition(*place, offset) for place, offset in offsets.items()])
    return {(place.topic, place.partition): future.result().low_watermark for place, future in futures.items()}
