"""Every API of the table has a handler, and nothing else has one."""

from agent.server.dispatch import HANDLERS
from protocol.api_versions import API_VERSIONS


def test_what_is_told_to_clients_is_what_is_handled() -> None:
    assert set(HANDLERS) == {int(row.api_key) for row in API_VERSIONS}
