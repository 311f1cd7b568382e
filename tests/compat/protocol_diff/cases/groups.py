"""Classic groups, and the offsets that they commit."""

from typing import Any

from tests.compat.protocol_diff.cases.pieces import (
    ABSENT,
    NOBODY,
    beat,
    commit,
    committed,
    join,
    leave,
    member,
    metadata,
    sync,
    topic,
)
from tests.compat.protocol_diff.steps import Cases, G, Mode, Step, T, V

CASES = Cases()

# FindCoordinator

for v in range(4):
    CASES.add(
        f"find.v{v}", Step("FindCoordinator", v, {"Key": G()} | ({"KeyType": 0} if v else {}), until=("ErrorCode", 0))
    )
for v in range(4, 7):
    CASES.add(
        f"find.v{v}",
        Step(
            "FindCoordinator",
            v,
            {"KeyType": 0, "CoordinatorKeys": [G(), G("h")]},
            until=("Coordinators.0.ErrorCode", 0),
        ),
    )
CASES.add(
    "find.transaction",
    Step("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": [G("x")]}, until=("Coordinators.0.ErrorCode", 0)),
)
CASES.add("find.bad-kind", Step("FindCoordinator", 4, {"KeyType": 9, "CoordinatorKeys": [G()]}))
CASES.add("find.bad-kind-v3", Step("FindCoordinator", 3, {"KeyType": 9, "Key": G()}))
CASES.add("find.no-keys", Step("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": []}))
CASES.add(
    "find.empty-key",
    Step("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [""]}),
    Step("FindCoordinator", 3, {"KeyType": 0, "Key": ""}),
)
CASES.add("find.share-bad-key", Step("FindCoordinator", 6, {"KeyType": 2, "CoordinatorKeys": ["not-a-share-key"]}))
CASES.add("find.share-old-version", Step("FindCoordinator", 5, {"KeyType": 2, "CoordinatorKeys": ["g:abc:0"]}))

# Classic groups

for v in range(10):
    CASES.add(f"join.v{v}", join(v, raw=True, name="1"), join(v, member=V("member1"), mask=("Metadata",)))
CASES.add("join.unknown-member", join(member="nobody"))
CASES.add("join.empty-group", join(group=""))
CASES.add("join.session-too-short", join(session=10))
CASES.add("join.session-too-long", join(session=100_000_000))
CASES.add("join.no-protocols", join(protocols=()))
CASES.add("join.no-type", join(kind=""))
CASES.add("join.other-type", member(), join(kind="connect"))
CASES.add("join.no-common-protocol", member(), join(protocols=("sticky",)))
CASES.add("join.rejoin-same", member(), join(member=V("member"), name="2"))
CASES.add(
    "join.two-members",
    member(),
    join(name="b", conn="b", raw=True),
    join(member=V("memberb"), conn="b", mode=Mode.SEND),
    beat(until=("ErrorCode", 27)),
    join(member=V("member"), name="a"),
    Step("JoinGroup", 5, {}, conn="b", mode=Mode.RECEIVE, save={"generationb": "GenerationId"}),
    sync(generation=V("generationa"), assign=((V("member"), b"one"), (V("memberb"), b"two"))),
    sync(member=V("memberb"), generation=V("generationa"), conn="b"),
    beat(generation=V("generationa")),
    beat(member=V("memberb"), generation=V("generationa")),
    leave(members=((V("memberb"), None),)),
    beat(generation=V("generationa"), until=("ErrorCode", 27)),
)
CASES.add(
    "join.protocol-choice",
    member(protocols=("range", "sticky")),
    join(protocols=("sticky", "range"), name="b", conn="b", raw=True),
    join(protocols=("sticky", "range"), member=V("memberb"), conn="b", mode=Mode.SEND),
    beat(until=("ErrorCode", 27)),
    join(member=V("member"), protocols=("range", "sticky")),
    Step("JoinGroup", 5, {}, conn="b", mode=Mode.RECEIVE),
)
CASES.add(
    "static.join", join(5, instance="i1"), sync(assign=((V("member"), b"part"),), instance="i1"), beat(instance="i1")
)
CASES.add(
    "static.restart",
    topic(),
    join(5, instance="i1", quiet=True),
    sync(assign=((V("member"), b"part"),), instance="i1", quiet=True),
    join(5, instance="i1", name="2"),
    sync(member=V("member2"), generation=V("generation2"), instance="i1"),
    beat(instance="i1"),
    beat(member=V("member2"), generation=V("generation2"), instance="i1"),
    commit(3, member=V("member"), generation=V("generation"), instance="i1"),
    leave(members=(("", "i1"),)),
)
CASES.add(
    "static.unknown-instance",
    member(),
    beat(instance="nobody"),
    sync(instance="nobody"),
    leave(members=(("", "nobody"),)),
)
CASES.add(
    "static.wrong-member",
    join(5, instance="i1", quiet=True),
    sync(assign=((V("member"), b"part"),), instance="i1", quiet=True),
    join(5, instance="i1", member="other"),
    leave(members=(("other", "i1"),)),
)
for v in range(6):
    CASES.add(
        f"sync.v{v}",
        join(0, quiet=True),
        Step(
            "SyncGroup",
            v,
            {
                "GroupId": G("g"),
                "GenerationId": V("generation"),
                "MemberId": V("member"),
                **({"ProtocolType": "consumer", "ProtocolName": "range"} if v >= 5 else {}),
                "Assignments": [{"MemberId": V("member"), "Assignment": b"part"}],
            },
        ),
    )
CASES.add("sync.unknown-group", sync(member="nobody", generation=1))
CASES.add("sync.unknown-member", member(), sync(member="nobody"))
CASES.add("sync.wrong-generation", member(), sync(generation=V("generation", 1)), sync(generation=V("generation", -1)))
CASES.add("sync.again", member(), sync(), sync(assign=((V("member"), b"other"),)))
CASES.add(
    "sync.wrong-protocol",
    member(),
    Step(
        "SyncGroup",
        5,
        {
            "GroupId": G("g"),
            "GenerationId": V("generation"),
            "MemberId": V("member"),
            "ProtocolType": "consumer",
            "ProtocolName": "sticky",
        },
    ),
    Step(
        "SyncGroup",
        5,
        {
            "GroupId": G("g"),
            "GenerationId": V("generation"),
            "MemberId": V("member"),
            "ProtocolType": "connect",
            "ProtocolName": "range",
        },
    ),
)
CASES.add("sync.no-assignment", join(0, quiet=True), sync())
CASES.add("sync.empty-group", sync(group="", member="nobody", generation=1))
for v in range(5):
    CASES.add(f"beat.v{v}", member(), beat(v))
CASES.add("beat.unknown-group", beat(member="nobody", generation=1))
CASES.add("beat.unknown-member", member(), beat(member="nobody"))
CASES.add("beat.wrong-generation", member(), beat(generation=V("generation", 1)))
CASES.add("beat.before-sync", join(0, quiet=True), beat())
CASES.add("beat.empty-group", beat(group="", member="nobody", generation=1))
for v in range(6):
    CASES.add(f"leave.v{v}", member(), leave(v), leave(v))
CASES.add("leave.unknown-group", leave(members=(("nobody", None),)), leave(2, members=(("nobody", None),)))
CASES.add("leave.some", member(), leave(members=((V("member"), None), ("nobody", None))))
CASES.add("leave.none", member(), leave(members=()))
CASES.add("leave.empty-group", leave(group="", members=(("nobody", None),)))
CASES.add(
    "groups.expired-member",
    join(0, session=6000, quiet=True),
    sync(assign=((V("member"), b"p"),), quiet=True),
    beat(pause=7.5),
    beat(),
)

for v in range(7):
    CASES.add(
        f"groups.describe-v{v}",
        member(),
        Step("DescribeGroups", v, {"Groups": [G("g")]}, mask=("ClientHost", "MemberMetadata")),
    )
CASES.add(
    "groups.describe-unknown",
    Step("DescribeGroups", 5, {"Groups": [G("none")]}),
    Step("DescribeGroups", 6, {"Groups": [G("none")]}),
)
CASES.add(
    "groups.describe-operations",
    member(),
    Step("DescribeGroups", 5, {"Groups": [G("g")], "IncludeAuthorizedOperations": True}, mask=("ClientHost",)),
)
CASES.add("groups.list-bad-state", Step("ListGroups", 4, {"StatesFilter": ["NoSuchState"]}))
CASES.add("groups.list-bad-type", Step("ListGroups", 5, {"TypesFilter": ["nosuchtype"]}))
CASES.add("groups.delete-unknown", Step("DeleteGroups", 2, {"GroupsNames": [G("none")]}))
CASES.add("groups.delete-live", member(), Step("DeleteGroups", 2, {"GroupsNames": [G("g")]}))
CASES.add("groups.delete-empty", topic(), commit(3), Step("DeleteGroups", 2, {"GroupsNames": [G("g")]}), committed())
CASES.add(
    "groups.delete-left",
    member(),
    leave(),
    Step("DescribeGroups", 5, {"Groups": [G("g")]}),
    Step("DeleteGroups", 1, {"GroupsNames": [G("g")]}),
)
CASES.add(
    "groups.delete-nameless",
    topic(),
    commit(3, group=""),
    Step("DeleteGroups", 2, {"GroupsNames": [""]}),
    Step("DeleteGroups", 2, {"GroupsNames": [""]}),
)

# OffsetCommit, OffsetFetch, OffsetDelete

for v in range(2, 11):
    CASES.add(f"commit.v{v}", topic(), commit(5, v), committed())
CASES.add("commit.unknown-topic", commit(5, topic=ABSENT), committed(topic=ABSENT))
CASES.add("commit.unknown-topic-id", commit(5, 10, topic_id=NOBODY))
CASES.add("commit.unknown-partition", topic(), commit(5, partition=9), committed(partitions=(9,)))
CASES.add("commit.unknown-member", topic(), commit(5, member="nobody", generation=1))
CASES.add("commit.member-without-generation", topic(), commit(5, member="nobody", generation=-1))
CASES.add("commit.generation-without-member", topic(), commit(5, generation=3))
CASES.add(
    "commit.in-group",
    topic(),
    member(),
    commit(5, member=V("member"), generation=V("generation")),
    commit(6, member=V("member"), generation=V("generation", 1)),
    commit(7, member="nobody", generation=V("generation")),
    commit(8),
    committed(),
)
CASES.add(
    "commit.while-rebalancing", topic(), join(0, quiet=True), commit(5, member=V("member"), generation=V("generation"))
)
CASES.add(
    "commit.after-leave",
    topic(),
    member(),
    leave(),
    commit(5, member=V("member"), generation=V("generation")),
    commit(6),
    committed(),
)
CASES.add("commit.negative-offset", topic(), commit(-1), committed(), commit(-7), committed())
CASES.add("commit.beyond-end", topic(), commit(10_000), committed())
CASES.add("commit.null-metadata", topic(), commit(5, metadata=None), committed())
CASES.add(
    "commit.large-metadata",
    topic(),
    commit(5, metadata="m" * 4096),
    commit(6, metadata="m" * 4097),
    committed(mask=("Metadata",)),
)
CASES.add("commit.empty-group", topic(), commit(5, group=""), committed(group=""))
CASES.add("commit.overwrite", topic(), commit(5), commit(3), committed())
CASES.add(
    "commit.unknown-instance",
    topic(),
    commit(5, instance="nobody"),
    commit(5, instance="nobody", member="x", generation=1),
)
for v in range(1, 10):
    CASES.add(f"fetch-offsets.v{v}", topic(partitions=2), commit(5), committed(v, partitions=(0, 1)))
CASES.add(
    "fetch-offsets.v10",
    topic(partitions=2),
    commit(5),
    Step(
        "OffsetFetch",
        10,
        {"Groups": [{"GroupId": G("g"), "Topics": [{"TopicId": V("id_t"), "PartitionIndexes": [0, 1]}]}]},
    ),
)
CASES.add(
    "fetch-offsets.v10-unknown-id",
    Step(
        "OffsetFetch", 10, {"Groups": [{"GroupId": G("g"), "Topics": [{"TopicId": NOBODY, "PartitionIndexes": [0]}]}]}
    ),
)
CASES.add("fetch-offsets.unknown-group", topic(), committed(group=G("none")))
CASES.add("fetch-offsets.unknown-topic", committed(topic=ABSENT))
CASES.add(
    "fetch-offsets.all",
    topic(partitions=2),
    commit(5),
    commit(6, partition=1),
    committed(every=True),
    committed(8, every=True),
)
CASES.add("fetch-offsets.all-of-unknown", committed(every=True))
CASES.add(
    "fetch-offsets.several-groups",
    topic(),
    commit(5),
    commit(6, group=G("h")),
    Step(
        "OffsetFetch",
        8,
        {
            "Groups": [
                {"GroupId": G("g"), "Topics": [{"Name": T(), "PartitionIndexes": [0]}]},
                {"GroupId": G("h"), "Topics": None},
                {"GroupId": G("none"), "Topics": None},
            ]
        },
    ),
)
CASES.add(
    "fetch-offsets.member-of-classic",
    topic(),
    member(),
    Step(
        "OffsetFetch",
        9,
        {
            "Groups": [
                {
                    "GroupId": G("g"),
                    "MemberId": "nobody",
                    "MemberEpoch": 1,
                    "Topics": [{"Name": T(), "PartitionIndexes": [0]}],
                }
            ]
        },
    ),
)
CASES.add(
    "fetch-offsets.after-topic-delete",
    topic(),
    commit(5),
    Step("DeleteTopics", 5, {"TopicNames": [T()], "TimeoutMs": 5000}),
    metadata([{"Name": T()}], until=("Topics.0.ErrorCode", 3), quiet=True),
    committed(until=("Topics.0.Partitions.0.CommittedOffset", -1)),
)


def forget(group: Any = G("g"), topic: Any = T(), partition: int = 0, **step: Any) -> Step:
    return Step(
        "OffsetDelete",
        0,
        {"GroupId": group, "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": partition}]}]},
        **step,
    )


CASES.add("forget.offset", topic(), commit(5), forget(), committed(), forget())
CASES.add("forget.unknown-group", topic(), forget(group=G("none")))
CASES.add("forget.unknown-topic", topic(), commit(5), forget(topic=ABSENT))
CASES.add("forget.live-group", topic(), commit(5, quiet=True), member(), forget())
