"""The agents that clients try to get into, one of each for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.security.guarded_agent import GuardedAgent, guarded_agent
from tests.security.login_agent import LoginAgent, login_agent


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedAgent]:
    """The agent of users without single rights."""
    with guarded_agent(tmp_path_factory.mktemp("guarded")) as agent:
        yield agent


@pytest.fixture(scope="package")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginAgent]:
    """The agent with a listener of each kind."""
    with login_agent(tmp_path_factory.mktemp("logins")) as agent:
        yield agent
