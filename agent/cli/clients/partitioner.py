"""The partition of a key, as the Java client computes it.

Source: org.apache.kafka.clients.producer.internals.BuiltInPartitioner and org.apache.kafka.common.utils.Utils.murmur2
(Kafka 4.3); murmur2 is Austin Appleby's, in the public domain.
"""

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition, 0 to `partition_count - 1`."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """The 32-bit hash, without a sign."""
    hashed = SEED ^ len(data)
    whole = len(data) & ~3
    for first in range(0, whole, 4):
        word = int.from_bytes(data[first : first + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        hashed = (hashed * MULTIPLIER & MASK) ^ word
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    hashed = (hashed ^ hashed >> 13) * MULTIPLIER & MASK
    return hashed ^ hashed >> 15
