"""Configs and quotas are altered by operations, each on what is set by then."""

import pytest
from msgspec.structs import replace

from coordinator.apply import configs as apply_configs
from coordinator.commands.admin import (
    AlterClientQuotas,
    AlterConfigs,
    ConfigOperation,
    ConfigResourceType,
    OperationKind,
)
from coordinator.commands.commands import ChunksCommitted, Done, Outcome, Rejected
from coordinator.security.quota_rules import QuotaEntity
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.state import EVERY_BROKER, ClusterState
from protocol.errors import ErrorCode
from protocol.limits import CONFIG_VALUE_CHARS_MAX, CONFIGS_BYTES_MAX
from tests.support.commands.commands import TOPIC, Batch, Chunk, Cluster, commit, create

USER: QuotaEntity = (("client-id", None), ("user", "ann"))


def alter(
    name: str, *, of: ConfigResourceType = ConfigResourceType.TOPIC, is_whole: bool = False, **configs: str | None
) -> AlterConfigs:
    """Sets configs, or deletes those that are None; underscores in their names stand for dots."""
    return AlterConfigs(
        resource_type=of,
        resource_name=name,
        is_whole=is_whole,
        operations=tuple(
            ConfigOperation(
                kind=OperationKind.DELETE if value is None else OperationKind.SET,
                name=key.replace("_", "."),
                value=value or "",
            )
            for key, value in configs.items()
        ),
    )


def append(name: str, value: str) -> AlterConfigs:
    operation = ConfigOperation(kind=OperationKind.APPEND, name=name, value=value, list_default="delete")
    return AlterConfigs(
        resource_type=ConfigResourceType.TOPIC, resource_name="t", is_whole=False, operations=(operation,)
    )


def rejection(outcome: Outcome) -> ErrorCode:
    assert isinstance(outcome, Rejected)
    return outcome.error_code


class TestTopics:
    def test_overrides_are_set_and_deleted(self) -> None:
        cluster = Cluster.started(retention_ms="5")
        assert cluster.do(alter("t", retention_ms=None, max_message_bytes="7")) == Done()
        assert cluster.state.topics[TOPIC].configs == {"max.message.bytes": "7"}

    def test_an_alteration_of_the_whole_lets_go_of_the_rest(self) -> None:
        cluster = Cluster.started(retention_ms="5", segment_ms="9")
        cluster.do(alter("t", is_whole=True, retention_ms="6"))
        assert cluster.state.topics[TOPIC].configs == {"retention.ms": "6"}

    def test_two_that_did_not_know_of_each_other_both_count(self) -> None:
        cluster = Cluster.started()
        for command in (append("cleanup.policy", "compact"), alter("t", retention_ms="6"), append("x", "y")):
            assert cluster.do(command) == Done()
        assert cluster.state.topics[TOPIC].configs == {
            "cleanup.policy": "delete,compact",
            "retention.ms": "6",
            "x": "delete,y",
        }

    def test_whoever_keeps_the_configs_sees_that_they_are_others(self) -> None:
        cluster = Cluster.started(retention_ms="5")
        before = cluster.state.topics[TOPIC].configs
        cluster.do(alter("t", max_message_bytes="7"))
        assert cluster.state.topics[TOPIC].configs is not before
        assert before == {"retention.ms": "5"}

    def test_a_topic_that_was_deleted_meanwhile_is_refused(self) -> None:
        assert rejection(Cluster.started().do(alter("u", retention_ms="5"))) is ErrorCode.unknown_topic_or_partition

    def test_many_small_alterations_do_not_grow_beyond_what_an_entry_holds(self) -> None:
        cluster = Cluster.started()
        count = CONFIGS_BYTES_MAX // CONFIG_VALUE_CHARS_MAX
        for number in range(count - 1):
            operation = ConfigOperation(kind=OperationKind.SET, name=f"n{number}", value="x" * CONFIG_VALUE_CHARS_MAX)
            assert cluster.do(replace(alter("t"), operations=(operation,))) == Done()
        assert cluster.do(alter("t", last="x" * CONFIG_VALUE_CHARS_MAX, n0="x")) == Done()
        assert rejection(cluster.do(alter("t", n0="x" * CONFIG_VALUE_CHARS_MAX))) is ErrorCode.invalid_config
        assert cluster.state.topics[TOPIC].configs["n0"] == "x"


class TestWhoseClockStampsRecords:
    def stamped(self, cluster: Cluster, number: int) -> bool:
        outcome = cluster.do(commit(number, Chunk(batches=[Batch()])), time_ms=1_000)
        assert isinstance(outcome, ChunksCommitted)
        return outcome.append_time_ms == [1_000]

    def test_s14_an_altered_timestamp_type_counts_from_its_entry_on(self) -> None:
        cluster = Cluster.started()
        assert not self.stamped(cluster, 0)
        cluster.do(alter("t", message_timestamp_type="LogAppendTime"))
        assert self.stamped(cluster, 1)
        cluster.do(alter("t", message_timestamp_type=None))
        assert not self.stamped(cluster, 2)

    def test_s14_what_every_broker_says_counts_for_topics_that_say_nothing(self) -> None:
        cluster = Cluster.started()
        default = alter(EVERY_BROKER, of=ConfigResourceType.BROKER, log_message_timestamp_type="LogAppendTime")
        cluster.do(default)
        assert self.stamped(cluster, 0)
        cluster.do(alter("t", message_timestamp_type="CreateTime"))
        assert not self.stamped(cluster, 1)
        cluster.do(create("u", topic_id=type(TOPIC)(bytes(16 * [9]))))
        assert [topic.is_log_append_time for topic in cluster.state.topics.values()] == [False, True]
        assert [topic.is_log_append_time for topic in decoded(cluster).topics.values()] == [False, True]

    def test_s14_one_brokers_own_word_changes_nothing_for_topics(self) -> None:
        cluster = Cluster.started()
        cluster.do(alter("1", of=ConfigResourceType.BROKER, log_message_timestamp_type="LogAppendTime"))
        assert not self.stamped(cluster, 0)


def decoded(cluster: Cluster) -> ClusterState:
    state = decode_snapshot(encode_snapshot(cluster.state))
    assert digest(state) == digest(cluster.state)
    return state


@pytest.mark.parametrize(
    ("of", "field"),
    [
        (ConfigResourceType.BROKER, "broker_configs"),
        (ConfigResourceType.GROUP, "group_configs"),
        (ConfigResourceType.CLIENT_METRICS, "client_metrics_configs"),
    ],
)
class TestOtherResources:
    def test_configs_are_kept_by_name_until_the_last_one_is_deleted(self, of: ConfigResourceType, field: str) -> None:
        cluster = Cluster.started()
        cluster.do(alter("b", of=of, x="1"))
        cluster.do(alter("a", of=of, z="3", y="2"))
        assert getattr(cluster.state, field) == {"a": {"y": "2", "z": "3"}, "b": {"x": "1"}}
        assert getattr(decoded(cluster), field) == getattr(cluster.state, field)
        before = getattr(cluster.state, field)
        cluster.do(alter("a", of=of, is_whole=True))
        assert getattr(cluster.state, field) == {"b": {"x": "1"}}
        assert getattr(cluster.state, field) is not before

    def test_there_is_a_greatest_number_of_them(
        self, of: ConfigResourceType, field: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(apply_configs, "CONFIG_RESOURCES_MAX", 2)
        cluster = Cluster.started()
        for name in ("a", "b"):
            assert cluster.do(alter(name, of=of, x="1")) == Done()
        assert rejection(cluster.do(alter("c", of=of, x="1"))) is ErrorCode.policy_violation
        assert cluster.do(alter("a", of=of, x="2")) == Done()
        assert cluster.do(alter("c", of=of, x=None)) == Done()
        assert getattr(cluster.state, field) == {"a": {"x": "2"}, "b": {"x": "1"}}

    def test_what_is_too_much_is_refused(self, of: ConfigResourceType, field: str) -> None:
        cluster = Cluster.started()
        assert rejection(cluster.do(alter("a", of=of, x="x" * CONFIGS_BYTES_MAX))) is ErrorCode.invalid_config
        assert getattr(cluster.state, field) == {}


def test_levels_of_loggers_are_not_in_the_ledger() -> None:
    outcome = Cluster.started().do(alter("1", of=ConfigResourceType.BROKER_LOGGER, root="DEBUG"))
    assert rejection(outcome) is ErrorCode.invalid_request


class TestQuotas:
    def test_they_are_set_and_removed_one_by_one(self) -> None:
        cluster = Cluster.started()
        first = AlterClientQuotas(entity=USER, quotas=(("b", 2.5), ("a", 1.0)))
        assert cluster.do(first) == Done()
        assert decoded(cluster).client_quotas == {USER: {"a": 1.0, "b": 2.5}}
        cluster.do(replace(first, quotas=(("b", None), ("c", 3.0), ("d", None))))
        assert cluster.state.client_quotas == {USER: {"a": 1.0, "c": 3.0}}
        cluster.do(replace(first, quotas=(("a", None), ("c", None))))
        assert cluster.state.client_quotas == {}

    def test_nothing_is_kept_of_an_entity_that_never_had_any(self) -> None:
        cluster = Cluster.started()
        cluster.do(AlterClientQuotas(entity=USER, quotas=(("a", None),)))
        assert cluster.state.client_quotas == {}

    def test_there_is_a_greatest_number_of_entities(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apply_configs, "QUOTA_ENTITIES_MAX", 1)
        cluster = Cluster.started()
        cluster.do(AlterClientQuotas(entity=USER, quotas=(("a", 1.0),)))
        other: QuotaEntity = (("ip", "::1"),)
        assert (
            rejection(cluster.do(AlterClientQuotas(entity=other, quotas=(("a", 1.0),)))) is ErrorCode.policy_violation
        )
        assert cluster.do(AlterClientQuotas(entity=other, quotas=(("a", None),))) == Done()
        assert cluster.do(AlterClientQuotas(entity=USER, quotas=(("a", 2.0),))) == Done()

    def test_the_order_in_a_snapshot_is_that_of_the_names_with_defaults_first(self) -> None:
        entities: list[QuotaEntity] = [(("user", "b"),), (("user", None),), (("user", "a"),), (("client-id", "z"),)]
        states = []
        for order in (entities, entities[::-1]):
            cluster = Cluster.started()
            for entity in order:
                cluster.do(AlterClientQuotas(entity=entity, quotas=(("a", 1.0),)))
            states.append(encode_snapshot(cluster.state))
            assert list(decoded(cluster).client_quotas) == [entities[3], entities[1], entities[2], entities[0]]
        assert states[0] == states[1]
