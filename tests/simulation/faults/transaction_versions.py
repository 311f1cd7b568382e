"""The level of transaction.version, which an operator raises and lowers while transactions are open.

Rule: a client speaks of its next transaction as the newest level says that it was told, and of one that is open as it
began it; an agent that is behind tells an older level, with the epoch of features that it had (KIP-584, KIP-890).
Source: org.apache.kafka.clients.producer.internals.TransactionManager.maybeUpdateTransactionV2Enabled (Kafka 4.3).
"""

import struct

from protocol.errors import ErrorCode
from tests.simulation.audit.transaction_auditor import TransactionAuditor
from tests.simulation.clients.clients import NONE, PRODUCE_TIMEOUT_MS, Client, ClientWorld
from tests.simulation.clients.group_wire import NO_TAGS, CompactReader, compact, varint
from tests.simulation.cluster.connections import ConnectionLost

API_VERSIONS, UPDATE_FEATURES = 18, 57
API_VERSIONS_VERSION, UPDATE_FEATURES_VERSION = 4, 1
TRANSACTION_VERSION = "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2
LEVELS = (0, 1, 2)
V2_LEVEL = 2
EPOCH_TAG, LEVELS_TAG = 1, 2
CHANGES_SECONDS_MAX = 4.0
CALM_SECONDS = 5.0


def api_versions() -> bytes:
    """Who asks is nobody in particular."""
    return compact("simulated") + compact("1") + NO_TAGS


def read_features(data: bytes) -> tuple[int, int]:
    """The epoch of the features, and the level of transaction.version; 0 where it is not told."""
    reader = CompactReader(NO_TAGS + data)  # the answer's header has none in any version
    reader.number("h")
    for _ in range(reader.count()):
        reader.numbers("hhh")
        reader.tags()
    reader.number("i")
    epoch, level = -1, 0
    for _ in range(reader.varint()):
        tag, size = reader.varint(), reader.varint()
        if tag == EPOCH_TAG:
            epoch = reader.number("q")
        elif tag == LEVELS_TAG:
            for _ in range(reader.count()):
                reader.text()
                level, _ = reader.numbers("hh")
                reader.tags()
        else:
            reader.bytes(size)
    return epoch, level


def update_features(level: int, upgrade_type: int) -> bytes:
    """One feature."""
    out = struct.pack(">i", PRODUCE_TIMEOUT_MS) + varint(2) + compact(TRANSACTION_VERSION)
    return out + struct.pack(">hb", level, upgrade_type) + NO_TAGS + struct.pack(">b", 0) + NO_TAGS


def read_updated(data: bytes) -> int:
    """The error."""
    reader = CompactReader(data)
    _, error = reader.numbers("ih")
    return error


class LevelWatcher(Client):
    """What a client knows of the level."""

    def __init__(self, world: ClientWorld, name: str, auditor: TransactionAuditor) -> None:
        super().__init__(world, name)
        self._auditor = auditor
        self._epoch, self._level = -1, V2_LEVEL

    async def version(self) -> int:
        """How to speak of the next transaction; asked of some agent."""
        self.move()
        try:
            connection = await self.connection()
            told = await connection.ask(API_VERSIONS, API_VERSIONS_VERSION, api_versions(), 5.0, is_compact=True)
        except ConnectionLost:
            self.move()
        else:
            epoch, level = read_features(told)
            self._auditor.told_level(self.name, epoch, level)
            if epoch > self._epoch:
                self._epoch, self._level = epoch, level
        return 2 if self._level >= V2_LEVEL else 1


class VersionOperator(Client):
    """Raises and lowers transaction.version."""

    def __init__(self, world: ClientWorld) -> None:
        super().__init__(world, "operator of versions")

    async def run(self) -> None:
        """For ever."""
        level = V2_LEVEL
        while True:
            await self.world.clock.sleep(self.chance.random() * CHANGES_SECONDS_MAX)
            wanted = self.chance.choice([each for each in LEVELS if each != level])
            try:
                body = update_features(wanted, UPGRADE if wanted > level else SAFE_DOWNGRADE)
                connection = await self.connection()
                told = await connection.ask(UPDATE_FEATURES, UPDATE_FEATURES_VERSION, body, 10.0, is_compact=True)
            except ConnectionLost:
                self.move()
                continue
            error = read_updated(told)
            if error == NONE:
                level = wanted
            elif error == ErrorCode.invalid_update_version:
                level = wanted  # by a request whose answer was lost
            else:
                self.expect_retriable(error, f"level {wanted} of {TRANSACTION_VERSION}")
                self.move()
