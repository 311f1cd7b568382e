"""However alterations follow each other, a resource has what a plain mapping has after the same operations."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator.commands.admin import (
    AlterClientQuotas,
    AlterConfigs,
    ConfigOperation,
    ConfigResourceType,
    OperationKind,
)
from coordinator.commands.commands import Done
from coordinator.security.quota_rules import QuotaEntity
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from tests.support.commands.commands import TOPIC, Cluster
from tests.support.strategies.admin_commands import entities, operations

RESOURCES = [
    (ConfigResourceType.TOPIC, "t"),
    (ConfigResourceType.BROKER, ""),
    (ConfigResourceType.BROKER, "1"),
    (ConfigResourceType.GROUP, "g"),
    (ConfigResourceType.CLIENT_METRICS, "m"),
]
alterations = st.builds(
    lambda resource, is_whole, wanted: AlterConfigs(
        resource_type=resource[0], resource_name=resource[1], is_whole=is_whole, operations=tuple(wanted)
    ),
    st.sampled_from(RESOURCES),
    st.sampled_from([False, False, False, True]),
    st.lists(operations, max_size=4),
)


def model(configs: dict[str, str], operation: ConfigOperation) -> None:
    """The same as somebody would write it down who knows nothing of the ledger."""
    held = [part.strip() for part in configs.get(operation.name, operation.list_default).split(",") if part.strip()]
    named = [part.strip() for part in operation.value.split(",") if part.strip()]
    if operation.kind is OperationKind.SET:
        configs[operation.name] = operation.value
    elif operation.kind is OperationKind.DELETE:
        if operation.name in configs:
            del configs[operation.name]
    elif operation.kind is OperationKind.APPEND:
        for part in named:
            if part not in held:
                held.append(part)
        configs[operation.name] = ",".join(held)
    else:
        configs[operation.name] = ",".join(part for part in held if part not in named)


def held(cluster: Cluster, resource_type: ConfigResourceType, name: str) -> dict[str, str]:
    tables = {
        ConfigResourceType.BROKER: cluster.state.broker_configs,
        ConfigResourceType.GROUP: cluster.state.group_configs,
        ConfigResourceType.CLIENT_METRICS: cluster.state.client_metrics_configs,
    }
    return (
        cluster.state.topics[TOPIC].configs
        if resource_type is ConfigResourceType.TOPIC
        else tables[resource_type].get(name, {})
    )


@given(st.lists(alterations, max_size=12))
def test_any_sequence_of_alterations_is_that_of_a_plain_mapping(sequence: list[AlterConfigs]) -> None:
    cluster = Cluster.started()
    expected: dict[tuple[ConfigResourceType, str], dict[str, str]] = {resource: {} for resource in RESOURCES}
    for command in sequence:
        assert cluster.do(command) == Done()
        configs = expected[command.resource_type, command.resource_name]
        if command.is_whole:
            configs.clear()
        for operation in command.operations:
            model(configs, operation)
        for (resource_type, name), wanted in expected.items():
            assert held(cluster, resource_type, name) == wanted
    assert digest(decode_snapshot(encode_snapshot(cluster.state))) == digest(cluster.state)


@given(st.lists(st.tuples(entities, st.sampled_from("ab"), st.none() | st.integers(1, 9).map(float)), max_size=12))
def test_any_sequence_of_quotas_is_that_of_a_plain_mapping(
    sequence: list[tuple[QuotaEntity, str, float | None]],
) -> None:
    cluster = Cluster.started()
    expected: dict[tuple[QuotaEntity, str], float] = {}
    for entity, name, value in sequence:
        assert cluster.do(AlterClientQuotas(entity=entity, quotas=((name, value),))) == Done()
        if value is None:
            expected.pop((entity, name), None)
        else:
            expected[entity, name] = value
    quotas = cluster.state.client_quotas
    assert {(entity, name): value for entity, of in quotas.items() for name, value in of.items()} == expected
