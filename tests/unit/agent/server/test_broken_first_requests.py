"""Requests before a login whose bodies cannot be read: each is a failed login, and no bug of the agent."""

import pytest

from tests.support.auth.login_server import LISTENER, login_server
from tests.support.auth.sasl_frames import api_versions, handshake, header


@pytest.mark.parametrize(
    "frame",
    [
        header(18, 3, is_flexible=True),
        # Its names can be read, and the fields behind them are longer than the request.
        bytes(api_versions())[:-1] + b"\x01\x6e\x74",
        bytes(handshake("PLAIN"))[:-1],
    ],
)
async def test_a_broken_body_is_a_failed_login(frame: bytes) -> None:
    async with login_server() as login:
        peer = await login.connect()
        peer.send(frame)
        assert await peer.is_closed()
        assert login.count("penstock_connections_closed_total", {"reason": "bug"}) == 0
        labels = {"listener": LISTENER, "mechanism": ""}
        assert login.count("penstock_authentication_failures_total", labels) == 1
