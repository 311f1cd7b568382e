"""Committed offsets that do not expire, because nothing else records their reader's progress.

Kafka forgets the offsets of a group without members after offsets.retention.minutes (KIP-211): a consumer that comes
back later reads some records again, or none. What writes exactly once by a group's offset (`TransactionalSink`) would
write again what is there. So it commits the offset with this metadata.

Differs from Kafka: there such an offset expires like any other.
"""

from typing import Final

KEPT_OFFSET: Final = "penstock.keep"
"""The metadata by which a group keeps all its offsets until it is deleted, or their topics are."""
