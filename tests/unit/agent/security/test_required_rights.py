"""THE table of required rights has every API, and the handlers ask for what it says."""

import ast
import pkgutil
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import agent.handlers
from agent.handlers.rejected_requests import REJECTIONS
from agent.request.cluster_denials import CLUSTER_DENIALS
from agent.security import required_rights
from agent.security.required_rights import REQUIRED_RIGHTS, Right
from protocol.api_versions import API_VERSIONS, ApiKey
from protocol.auth.operations import SUPPORTED_OPERATIONS, Operation, ResourceType

HANDLERS = {
    ApiKey(module.API_KEY): module
    for found in pkgutil.iter_modules(agent.handlers.__path__)
    if hasattr(module := import_module(f"agent.handlers.{found.name}"), "API_KEY")
}


def test_every_api_has_its_row() -> None:
    assert set(REQUIRED_RIGHTS) == {row.api_key for row in API_VERSIONS}
    assert set(HANDLERS) | {rejection.api_key for rejection in REJECTIONS} == set(REQUIRED_RIGHTS)


def test_every_api_that_needs_the_cluster_has_its_denial() -> None:
    assert set(CLUSTER_DENIALS) == {api_key for api_key, row in REQUIRED_RIGHTS.items() if row.cluster}


@pytest.mark.parametrize("api_key", sorted(HANDLERS))
def test_a_handler_asks_for_the_rights_of_its_row_and_for_no_other(api_key: ApiKey) -> None:
    assert set(_imported_rights(HANDLERS[api_key])) == set(REQUIRED_RIGHTS[api_key].resources)


def test_every_right_is_one_that_the_resource_supports() -> None:
    asked = {right for row in REQUIRED_RIGHTS.values() for right in row.resources}
    asked |= {Right(operation, ResourceType.CLUSTER) for row in REQUIRED_RIGHTS.values() for operation in row.cluster}
    # Kafka asks for DELETE on the cluster, which no resource of that type lists among its operations.
    asked.discard(Right(Operation.DELETE, ResourceType.CLUSTER))
    assert [right for right in asked if not SUPPORTED_OPERATIONS[right.resource_type] >> right.operation & 1] == []


def _imported_rights(module: ModuleType) -> list[Right]:
    """The rights that a module imports from the table."""
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named = [
        getattr(required_rights, alias.name)
        for node in imports
        if node.module == required_rights.__name__
        for alias in node.names
    ]
    return [each for each in named if isinstance(each, Right)]
