"""What operations make of configs."""

import pytest

from coordinator.apply.config_operations import altered
from coordinator.commands.admin import ConfigOperation, OperationKind


def operation(kind: OperationKind, name: str, value: str = "", *, list_default: str = "") -> ConfigOperation:
    return ConfigOperation(kind=kind, name=name, value=value, list_default=list_default)


SET = operation(OperationKind.SET, "b", "2")
DELETE = operation(OperationKind.DELETE, "a")


def test_what_no_operation_names_stays_as_it_was() -> None:
    assert altered({"a": "1", "c": "3"}, [SET], is_whole=False) == {"a": "1", "b": "2", "c": "3"}


def test_of_the_whole_nothing_stays_that_no_operation_names() -> None:
    assert altered({"a": "1", "c": "3"}, [SET], is_whole=True) == {"b": "2"}


def test_names_are_in_order_and_the_configs_before_are_left_alone() -> None:
    before = {"c": "3", "a": "1"}
    assert list(altered(before, [SET], is_whole=False)) == ["a", "b", "c"]
    assert before == {"c": "3", "a": "1"}


def test_what_is_deleted_is_gone_and_need_not_have_been_there() -> None:
    assert altered({"a": "1"}, [DELETE, DELETE], is_whole=False) == {}


@pytest.mark.parametrize(
    ("held", "kind", "value", "expected"),
    [
        ("delete", OperationKind.APPEND, "compact", "delete,compact"),
        ("delete", OperationKind.APPEND, "delete", "delete"),
        ("a, b", OperationKind.APPEND, "c,b,c", "a,b,c"),
        ("", OperationKind.APPEND, "a", "a"),
        ("a,a", OperationKind.APPEND, "b,a", "a,a,b"),
        ("delete,compact", OperationKind.SUBTRACT, "delete", "compact"),
        ("delete", OperationKind.SUBTRACT, "compact,delete", ""),
        ("", OperationKind.SUBTRACT, "a", ""),
    ],
)
def test_elements_are_added_once_and_taken_away(held: str, kind: OperationKind, value: str, expected: str) -> None:
    assert altered({"l": held}, [operation(kind, "l", value)], is_whole=False) == {"l": expected}


@pytest.mark.parametrize(
    ("kind", "expected"), [(OperationKind.APPEND, "delete,compact"), (OperationKind.SUBTRACT, "delete")]
)
def test_a_list_that_nobody_set_begins_with_its_default(kind: OperationKind, expected: str) -> None:
    wanted = operation(kind, "cleanup.policy", "compact", list_default="delete")
    assert altered({}, [wanted], is_whole=False) == {"cleanup.policy": expected}
