"""The features in ApiVersions: those that are supported, and those whose level the cluster has set (KIP-584).

transaction.version is the only one. Its levels 0 and 1 are KIP-98's transactions; with 2 clients begin the next epoch
after every transaction (KIP-890). The meaning of a request depends on its own version alone, so that clients which read
different levels work side by side. Level 0 is left out, as in Kafka.
Source: org.apache.kafka.server.common.TransactionVersion, org.apache.kafka.server.ApiVersionManager (Kafka 4.3).
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from coordinator.state.state import TRANSACTION_VERSION_NEWEST

FeatureFields: TypeAlias = Mapping[str, str | int]
"""A feature's name and levels, by the names of the fields of an ApiVersions response."""
TRANSACTION_VERSION: Final = "transaction.version"
LEVEL_MIN: Final = 0
FIRST_WITH_LEVELS_FROM_ZERO: Final = 4
"""ApiVersions 0 to 3 leave out features whose lowest level is 0 (KAFKA-17011)."""


def supported_features(api_versions_version: int) -> Sequence[FeatureFields]:
    """The features that agents of this release support, with their lowest and highest levels."""
    if api_versions_version < FIRST_WITH_LEVELS_FROM_ZERO:
        return ()
    return ({"name": TRANSACTION_VERSION, "min_version": LEVEL_MIN, "max_version": TRANSACTION_VERSION_NEWEST},)


def finalized_features(level: int) -> Sequence[FeatureFields]:
    """The features whose level the cluster has decided on, with that level: clients use it. Empty at level 0."""
    if level == LEVEL_MIN:
        return ()
    return ({"name": TRANSACTION_VERSION, "max_version_level": level, "min_version_level": level},)
