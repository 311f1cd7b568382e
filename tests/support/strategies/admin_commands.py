"""Arbitrary commands about partition counts, configs and quotas, on few names, so that they meet each other."""

from hypothesis import strategies as st

from coordinator.commands.admin import (
    AdminCommand,
    AlterClientQuotas,
    AlterConfigs,
    ConfigOperation,
    ConfigResourceType,
    CreatePartitions,
    OperationKind,
)
from protocol.types import TopicId

topic_names = st.sampled_from(["a", "a.b", "a_b"])
resource_names = st.sampled_from(["", "1", "a", "a.b"])
operations = st.one_of(
    st.builds(
        ConfigOperation,
        kind=st.sampled_from(OperationKind),
        name=st.sampled_from(["cleanup.policy", "log.cleanup.policy", "x"]),
        value=st.sampled_from(["", "delete", "compact", "compact, delete", "compact,compact"]),
        list_default=st.sampled_from(["", "delete"]),
    ),
    st.builds(
        ConfigOperation,
        kind=st.sampled_from([OperationKind.SET, OperationKind.DELETE]),
        name=st.sampled_from(["message.timestamp.type", "log.message.timestamp.type"]),
        value=st.sampled_from(["LogAppendTime", "CreateTime"]),
    ),
    st.builds(
        ConfigOperation,
        kind=st.sampled_from([OperationKind.SET, OperationKind.DELETE]),
        name=st.sampled_from(["retention.ms", "log.retention.ms", "log.retention.bytes"]),
        value=st.sampled_from(["-1", "0", "300", "no number"]),
    ),
)
entities = st.sampled_from([(("user", None),), (("client-id", "c"), ("user", "ann")), (("ip", "::1"),)])

admin_commands: st.SearchStrategy[AdminCommand] = st.one_of(
    st.builds(
        CreatePartitions,
        topic_id=st.integers(1, 3).map(lambda number: TopicId(bytes([number] * 16))),
        partition_count=st.integers(-1, 4),
    ),
    st.builds(
        AlterConfigs,
        resource_type=st.just(ConfigResourceType.TOPIC),
        resource_name=topic_names,
        is_whole=st.booleans(),
        operations=st.lists(operations, max_size=3).map(tuple),
    ),
    st.builds(
        AlterConfigs,
        resource_type=st.sampled_from(ConfigResourceType),
        resource_name=resource_names,
        is_whole=st.booleans(),
        operations=st.lists(operations, max_size=3).map(tuple),
    ),
    st.builds(
        AlterClientQuotas,
        entity=entities,
        quotas=st.lists(
            st.tuples(st.sampled_from(["a", "b"]), st.none() | st.floats(min_value=0, exclude_min=True)), max_size=3
        ).map(tuple),
    ),
)
