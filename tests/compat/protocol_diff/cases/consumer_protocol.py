"""The consumer protocol (KIP-848), and share groups."""

from typing import Any

from tests.compat.protocol_diff.cases.pieces import beat, commit, committed, join, member, topic
from tests.compat.protocol_diff.steps import Cases, G, Step, T, V

CASES = Cases()

# The consumer protocol (KIP-848)


def live(
    epoch: Any,
    *,
    group: Any = G("g"),
    member: Any = "AAAAAAAAAAAAAAAAAAAAAA",
    topics: Any = (T(),),
    rebalance: int = 60000,
    instance: Any = None,
    owned: Any = (),
    assignor: Any = None,
    version: int = 1,
    **step: Any,
) -> Step:
    body: dict[str, Any] = {
        "GroupId": group,
        "MemberId": member,
        "MemberEpoch": epoch,
        "InstanceId": instance,
        "RebalanceTimeoutMs": rebalance,
        "SubscribedTopicNames": None if topics is None else list(topics),
        "ServerAssignor": assignor,
        "TopicPartitions": None if owned is None else [{"TopicId": t, "Partitions": list(p)} for t, p in owned],
    }
    return Step("ConsumerGroupHeartbeat", version, body, save={"epoch": "MemberEpoch"}, **step)


CASES.add(
    "live.join",
    topic(partitions=2),
    live(0, until=("ErrorCode", 0)),
    live(V("epoch"), owned=((V("id_t"), (0, 1)),)),
    Step("ConsumerGroupDescribe", 1, {"GroupIds": [G("g")]}, mask=("ClientHost",)),
)
CASES.add("live.leave", topic(), live(0), live(-1), live(V("epoch", 2)))
CASES.add("live.unknown-member", topic(), live(5))
CASES.add("live.epoch-ahead", topic(), live(0), live(V("epoch", 5)))
CASES.add("live.epoch-behind", topic(), live(0), live(V("epoch", -1), owned=()))
CASES.add("live.no-group", live(0, group=""))
CASES.add("live.no-member", live(0, member=""))
CASES.add("live.no-topics", live(0, topics=None))
CASES.add("live.no-rebalance-timeout", live(0, rebalance=-1))
CASES.add("live.owned-on-join", topic(), live(0, owned=((V("id_t"), (0,)),)))
CASES.add("live.bad-assignor", topic(), live(0, assignor="nosuch"))
CASES.add("live.bad-epoch", topic(), live(-5))
CASES.add("live.over-classic", member(), topic(), live(0))
CASES.add("live.classic-over-live", topic(), live(0), join(raw=True), beat(member="nobody", generation=1))
CASES.add(
    "live.commit",
    topic(),
    live(0),
    commit(5, 9, member="AAAAAAAAAAAAAAAAAAAAAA", generation=V("epoch")),
    commit(6, 9, member="AAAAAAAAAAAAAAAAAAAAAA", generation=V("epoch", 1)),
    commit(7, 9, member="nobody", generation=1),
    commit(8, 9),
    commit(9, 8, member="AAAAAAAAAAAAAAAAAAAAAA", generation=V("epoch", -1)),
    committed(),
)
CASES.add(
    "live.static",
    topic(),
    live(0, instance="i1"),
    live(0, instance="i1", member="BBBBBBBBBBBBBBBBBBBBBB"),
    live(-2, instance="i1"),
    live(0, instance="i1", member="BBBBBBBBBBBBBBBBBBBBBB"),
)
CASES.add("live.describe-unknown", Step("ConsumerGroupDescribe", 0, {"GroupIds": [G("none")]}))
CASES.add(
    "live.regex",
    topic(),
    Step(
        "ConsumerGroupHeartbeat",
        1,
        {
            "GroupId": G("g"),
            "MemberId": "AAAAAAAAAAAAAAAAAAAAAA",
            "MemberEpoch": 0,
            "RebalanceTimeoutMs": 60000,
            "SubscribedTopicRegex": "(",
            "TopicPartitions": [],
        },
    ),
)
CASES.add(
    "share.unknown-member",
    Step(
        "ShareGroupHeartbeat",
        1,
        {"GroupId": G("s"), "MemberId": "AAAAAAAAAAAAAAAAAAAAAA", "MemberEpoch": 5, "SubscribedTopicNames": None},
    ),
)
CASES.add(
    "share.join",
    topic(),
    Step(
        "ShareGroupHeartbeat",
        1,
        {"GroupId": G("s"), "MemberId": "AAAAAAAAAAAAAAAAAAAAAA", "MemberEpoch": 0, "SubscribedTopicNames": [T()]},
    ),
    Step("ShareGroupDescribe", 1, {"GroupIds": [G("s")]}, mask=("ClientHost",)),
)
CASES.add("share.describe-unknown", Step("ShareGroupDescribe", 1, {"GroupIds": [G("none")]}))
