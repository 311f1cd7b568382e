"""The changes that requests make, read from body and response: one table of all APIs that change something.

A row takes the decoded body, and the fields of the response, None where the handler failed. It yields the changes that
were made, and those whose outcome the response does not know. A request that is only validated makes none. Values of
configs that look like secrets are left out, and a credential is named by its mechanism alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from agent.request.messages import Values
from agent.security.audit.audit_events import AuditedResource
from agent.security.audit.audit_texts import config_text, configs_text
from coordinator.commands.admin import ConfigResourceType, OperationKind
from protocol.api_versions import ApiKey
from protocol.auth.operations import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from protocol.auth.scram_credentials import ScramMechanism
from protocol.errors import ErrorCode

UNKNOWN_OUTCOMES: Final = frozenset(
    {ErrorCode.request_timed_out, ErrorCode.not_leader_or_follower, ErrorCode.coordinator_not_available}
)
"""Errors after which the change may be made or not."""
_CLUSTER: Final = AuditedResource(kind=ResourceType.CLUSTER, name=CLUSTER_NAME)


@dataclass(frozen=True, slots=True)
class RequestedChange:
    """One change of one resource, in words."""

    resource: AuditedResource
    operation: Operation
    text: str
    is_certain: bool = True


Outcome = bool | None
"""Whether a change was made for certain; None where it was not made."""
ChangesOf = Callable[[Any, Values | None], Iterable[RequestedChange]]


def outcome_of(error_code: int | None) -> Outcome:
    """The outcome that a row of a response means; without a row it is not certain."""
    if error_code is None:
        return False
    if error_code == ErrorCode.none:
        return True
    return False if error_code in UNKNOWN_OUTCOMES else None


def _topic(name: str) -> AuditedResource:
    return AuditedResource(kind=ResourceType.TOPIC, name=name)


def _group(name: str) -> AuditedResource:
    return AuditedResource(kind=ResourceType.GROUP, name=name)


def _error_codes(values: Values | None, rows: str, key: str) -> Mapping[Any, int]:
    """The error code of each row of a response, by the row's name."""
    return {} if values is None else {row[key]: row["error_code"] for row in values[rows]}


def _created_topics(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    if body.validate_only:
        return
    error_codes = _error_codes(values, "topics", "name")
    counts = {} if values is None else {row["name"]: row["num_partitions"] for row in values["topics"]}
    for topic in body.topics:
        outcome = outcome_of(error_codes.get(topic.name))
        if outcome is not None:
            count = counts.get(topic.name, topic.num_partitions)
            configs = configs_text((config.name, config.value) for config in topic.configs)
            text = f"created with {count} partitions{configs and f', {configs}'}"
            yield RequestedChange(_topic(topic.name), Operation.CREATE, text, outcome)


def _deleted_topics(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    if values is None:
        names = (
            body.topic_names if hasattr(body, "topic_names") else [each.name or each.topic_id for each in body.topics]
        )
        rows: Sequence[Mapping[str, Any]] = [{"name": str(name), "error_code": None} for name in names]
    else:
        rows = values["responses"]
    for row in rows:
        outcome = outcome_of(row["error_code"])
        if outcome is not None:
            name = row["name"] or str(row["topic_id"])
            yield RequestedChange(_topic(name), Operation.DELETE, "deleted", outcome)


def _created_partitions(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    if body.validate_only:
        return
    error_codes = _error_codes(values, "results", "name")
    for topic in body.topics:
        outcome = outcome_of(error_codes.get(topic.name))
        if outcome is not None:
            text = f"grown to {topic.count} partitions"
            yield RequestedChange(_topic(topic.name), Operation.ALTER, text, outcome)


def _deleted_records(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    error_codes: dict[tuple[str, int], int] = {}
    for row in () if values is None else values["topics"]:
        error_codes |= {(row["name"], each["partition_index"]): each["error_code"] for each in row["partitions"]}
    for topic in body.topics:
        outcomes = {
            each.partition_index: outcome_of(error_codes.get((topic.name, each.partition_index)))
            for each in topic.partitions
        }
        for is_certain in (True, False):
            parts = [
                f"{each.partition_index}: {each.offset if each.offset >= 0 else 'all'}"
                for each in topic.partitions
                if outcomes[each.partition_index] is is_certain
            ]
            if parts:
                text = f"records deleted below the offset of a partition: {', '.join(parts)}"
                yield RequestedChange(_topic(topic.name), Operation.DELETE, text, is_certain)


def _altered_configs(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    if body.validate_only:
        return
    error_codes: dict[tuple[int, str], int] = {}
    for row in () if values is None else values["responses"]:
        error_codes[row["resource_type"], row["resource_name"]] = row["error_code"]
    for resource in body.resources:
        outcome = outcome_of(error_codes.get((resource.resource_type, resource.resource_name)))
        if outcome is not None:
            text = ", ".join(map(_config_operation, resource.configs)) or "all removed"
            about, prefix = _config_resource(resource.resource_type, resource.resource_name)
            yield RequestedChange(about, Operation.ALTER_CONFIGS, f"{prefix}configs: {text}", outcome)


def _config_resource(resource_type: int, name: str) -> tuple[AuditedResource, str]:
    """The resource of ACLs that stands for one with configs, and a prefix for the text."""
    match resource_type:
        case ConfigResourceType.TOPIC:
            return _topic(name), ""
        case ConfigResourceType.GROUP:
            return _group(name), ""
        case ConfigResourceType.BROKER:
            return _CLUSTER, f"broker {name or 'default'}, "
        case ConfigResourceType.BROKER_LOGGER:
            return _CLUSTER, f"loggers of broker {name}, "
        case _:
            return _CLUSTER, f"telemetry subscription {name}, "


def _config_operation(config: Any) -> str:
    """One operation of IncrementalAlterConfigs, or one value of AlterConfigs."""
    kind = getattr(config, "config_operation", OperationKind.SET)
    if kind == OperationKind.DELETE:
        return f"{config.name} removed"
    text = config_text(config.name, config.value)
    return text if kind == OperationKind.SET else f"{OperationKind(kind).name} {text}"


def _altered_quotas(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    if body.validate_only:
        return
    error_codes: dict[frozenset[tuple[str, str | None]], int] = {}
    for row in () if values is None else values["entries"]:
        error_codes[frozenset((each["entity_type"], each["entity_name"]) for each in row["entity"])] = row["error_code"]
    for entry in body.entries:
        entity = [(each.entity_type, each.entity_name) for each in entry.entity]
        outcome = outcome_of(error_codes.get(frozenset(entity)))
        if outcome is not None:
            named = ", ".join(f"{kind}={'default' if name is None else name}" for kind, name in entity)
            quotas = ", ".join(
                f"{each.key} {'removed' if each.remove else f'= {_number(each.value)}'}" for each in entry.ops
            )
            text = f"quotas of {named}: {quotas}"
            yield RequestedChange(_CLUSTER, Operation.ALTER_CONFIGS, text, outcome)


def _number(value: float) -> str:
    """All digits of a value: 1048576, 0.5."""
    return repr(float(value)).removesuffix(".0")


def _deleted_groups(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    error_codes = _error_codes(values, "results", "group_id")
    for group_id in body.groups_names:
        outcome = outcome_of(error_codes.get(group_id))
        if outcome is not None:
            yield RequestedChange(_group(group_id), Operation.DELETE, "deleted", outcome)


def _deleted_offsets(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    is_failed = values is not None and values["error_code"] != ErrorCode.none
    outcome = outcome_of(None if values is None else values["error_code"])
    if outcome is None:
        return
    rows = {} if values is None else {row["name"]: row["partitions"] for row in values["topics"]}
    parts: list[str] = []
    for topic in body.topics:
        indexes = [each.partition_index for each in topic.partitions]
        if not is_failed and values is not None:
            indexes = [row["partition_index"] for row in rows[topic.name] if row["error_code"] == ErrorCode.none]
        if indexes:
            parts.append(f"{topic.name}: {', '.join(map(str, indexes))}")
    if parts:
        text = f"committed offsets deleted: {'; '.join(parts)}"
        yield RequestedChange(_group(body.group_id), Operation.DELETE, text, outcome)


def _altered_reassignments(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    if values is not None and values["error_code"] != ErrorCode.none:
        return
    error_codes: dict[tuple[str, int], int] = {}
    for row in () if values is None else values["responses"]:
        error_codes |= {(row["name"], each["partition_index"]): each["error_code"] for each in row["partitions"]}
    for topic in body.topics:
        for partition in topic.partitions:
            outcome = outcome_of(error_codes.get((topic.name, partition.partition_index)))
            if outcome is not None:
                replicas = "none of its own" if partition.replicas is None else list(map(int, partition.replicas))
                text = f"replicas of partition {partition.partition_index}: {replicas}"
                yield RequestedChange(_topic(topic.name), Operation.ALTER, text, outcome)


def _updated_features(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    outcome = outcome_of(None if values is None else values["error_code"])
    if outcome is not None and not getattr(body, "validate_only", False):
        text = ", ".join(f"{each.feature}={each.max_version_level}" for each in body.feature_updates)
        yield RequestedChange(_CLUSTER, Operation.ALTER, f"levels of features: {text}", outcome)


def _created_acls(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    rows = [{"error_code": None}] * len(body.creations) if values is None else values["results"]
    for creation, row in zip(body.creations, rows, strict=True):
        outcome = outcome_of(row["error_code"])
        if outcome is not None:
            pattern = getattr(creation, "resource_pattern_type", PatternType.LITERAL)  # version 0 has none (KIP-290)
            yield _acl_change(creation, pattern, "ACL created", is_certain=outcome)


def _deleted_acls(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    if values is None:
        for each in body.filters:
            text = f"ACLs deleted that fit resource {each.resource_name_filter}, principal {each.principal_filter}"
            yield RequestedChange(_CLUSTER, Operation.ALTER, text, is_certain=False)
        return
    for result in values["filter_results"]:
        outcome = outcome_of(result["error_code"])
        for acl in result["matching_acls"] if outcome is not None else ():
            yield _acl_change(_ResponseRow(acl), acl["pattern_type"], "ACL deleted", is_certain=bool(outcome))


class _ResponseRow:
    """A row of a response, whose fields are read as attributes, as those of a request are."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        return self._fields[name]


def _acl_change(acl: Any, pattern: int, what: str, *, is_certain: bool) -> RequestedChange:
    permission, operation = Permission(acl.permission_type).name, Operation(acl.operation).name
    return RequestedChange(
        AuditedResource(kind=ResourceType(acl.resource_type), name=acl.resource_name, pattern=PatternType(pattern)),
        operation=Operation.ALTER,
        text=f"{what}: {permission} {operation} to {acl.principal} from {acl.host}",
        is_certain=is_certain,
    )


def _altered_credentials(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    error_codes = _error_codes(values, "results", "user")
    changes = [(each, "deleted") for each in body.deletions]
    changes += [(each, f"set with {each.iterations} iterations") for each in body.upsertions]
    for each, what in changes:
        outcome = outcome_of(error_codes.get(each.name))
        if outcome is not None:
            resource = AuditedResource(kind=ResourceType.USER, name=each.name)
            text = f"{_mechanism(each.mechanism)} credential {what}"
            yield RequestedChange(resource, Operation.ALTER, text, outcome)


def _mechanism(code: int) -> str:
    return ScramMechanism(code).name.replace("_", "-") if code in tuple(ScramMechanism) else str(code)


def _created_token(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    outcome = outcome_of(None if values is None else values["error_code"])
    if outcome is not None:
        owner = "the requester" if values is None else f"{values['principal_type']}:{values['principal_name']}"
        renewers = ", ".join(f"{each.principal_type}:{each.principal_name}" for each in body.renewers) or "no other"
        text = f"created for {owner}, renewable by {renewers}"
        if outcome and values is not None:
            text += f", until {values['max_timestamp'].isoformat()} at most"
        yield RequestedChange(_token(values), Operation.CREATE_TOKENS, text, outcome)


def _renewed_token(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    del body  # has the HMAC, which is a secret
    outcome = outcome_of(None if values is None else values["error_code"])
    if outcome is not None:
        text = "renewed"
        if outcome and values is not None:
            text += f" until {values['expiry_timestamp'].isoformat()}"
        yield RequestedChange(_token(values), Operation.ALTER, text, outcome)


def _expired_token(body: Any, values: Values | None) -> Iterator[RequestedChange]:
    outcome = outcome_of(None if values is None else values["error_code"])
    if outcome is not None:
        text = "removed" if body.expiry_time_period < timedelta(0) else "end set"
        if outcome and values is not None and text == "end set":
            text += f" to {values['expiry_timestamp'].isoformat()}"
        yield RequestedChange(_token(values), Operation.ALTER, text, outcome)


def _token(values: Values | None) -> AuditedResource:
    """The token that an answer is about; its id is not known where there is no answer, or an error."""
    return AuditedResource(kind=ResourceType.DELEGATION_TOKEN, name="" if values is None else values["token_id"])


CHANGES: Final[Mapping[int, ChangesOf]] = {
    ApiKey.CREATE_DELEGATION_TOKEN: _created_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _renewed_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _expired_token,
    ApiKey.CREATE_TOPICS: _created_topics,
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.DELETE_RECORDS: _deleted_records,
    ApiKey.CREATE_ACLS: _created_acls,
    ApiKey.DELETE_ACLS: _deleted_acls,
    ApiKey.ALTER_CONFIGS: _altered_configs,
    ApiKey.CREATE_PARTITIONS: _created_partitions,
    ApiKey.DELETE_GROUPS: _deleted_groups,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _altered_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _altered_reassignments,
    ApiKey.OFFSET_DELETE: _deleted_offsets,
    ApiKey.ALTER_CLIENT_QUOTAS: _altered_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _altered_credentials,
    ApiKey.UPDATE_FEATURES: _updated_features,
}
"""The APIs whose requests change what the audit log watches."""
