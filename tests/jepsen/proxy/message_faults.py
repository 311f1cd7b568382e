"""What happens to single messages of transactions during a run, drawn by chance.

Rule: only what a network, or a client's library that asks again, can do. A message is late, or lost with its
connection, in both versions. A request that comes twice is left to V2 and to Produce: V1 has nothing by which a broker
could tell a copy of the last transaction's end from the next one's (KAFKA-17754, KIP-890).
"""

import random
from collections.abc import Mapping

from tests.jepsen.proxy.frames import Api
from tests.jepsen.proxy.rules import Act, Rule, Side

HELD_SECONDS_MAX = 6.0
"""Twice the time after which clients give up a request."""
VERSIONS_END = 1_000
V2: Mapping[Api, range] = {
    Api.PRODUCE: range(VERSIONS_END),
    Api.END_TXN: range(5, VERSIONS_END),
    Api.TXN_OFFSET_COMMIT: range(5, VERSIONS_END),
}
"""Which versions may come twice."""


def message_fault(chance: random.Random) -> Rule:
    """A rule that strikes one message."""
    act = chance.choice(list(Act))
    if act is Act.DUPLICATE:
        api = chance.choice(list(V2))
        return Rule(
            act=act,
            api_key=api,
            versions=V2[api],
            is_held=chance.random() < 0.5,
            is_elsewhere=chance.random() < 0.5,
            seconds=chance.uniform(0, HELD_SECONDS_MAX),
        )
    side, api = chance.choice(list(Side)), chance.choice(list(Api))
    return Rule(act=act, api_key=api, side=side, seconds=chance.uniform(0, HELD_SECONDS_MAX))
