"""The result of config operations on a resource, both for the check before a proposal and where an entry is applied.

Source: org.apache.kafka.controller.ConfigurationControlManager.incrementalAlterConfigs (Kafka 4.3).
"""

from collections.abc import Iterable, Mapping
from typing import assert_never

from coordinator.commands.admin import ConfigOperation, OperationKind
from coordinator.configs.config_types import split_list


def altered(configs: Mapping[str, str], operations: Iterable[ConfigOperation], *, is_whole: bool) -> dict[str, str]:
    """The configs after these operations, in order of names; `is_whole`: what none of them names is gone."""
    result = {} if is_whole else dict(configs)
    for operation in operations:
        match operation.kind:
            case OperationKind.SET:
                result[operation.name] = operation.value
            case OperationKind.DELETE:
                result.pop(operation.name, None)
            case OperationKind.APPEND | OperationKind.SUBTRACT:
                result[operation.name] = ",".join(_elements(result, operation))
            case _:
                assert_never(operation.kind)
    return dict(sorted(result.items()))


def _elements(configs: Mapping[str, str], operation: ConfigOperation) -> list[str]:
    elements = split_list(configs.get(operation.name, operation.list_default))
    named = split_list(operation.value)
    if operation.kind is OperationKind.APPEND:
        return elements + [element for element in dict.fromkeys(named) if element not in elements]
    return [element for element in elements if element not in named]
