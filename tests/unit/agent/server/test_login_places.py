"""Places of clients that have not authenticated, which their addresses share."""

from unittest import mock

from agent.server import connection_table
from tests.support.auth.login_server import login_server
from tests.support.auth.sasl_frames import handshake


async def test_one_address_keeps_no_other_out() -> None:
    with mock.patch.object(connection_table, "UNAUTHENTICATED_CONNECTIONS_MAX", 2):
        async with login_server() as login:
            oldest, newer = [await login.connect() for _ in range(2)]
            await oldest.ask(handshake("PLAIN"))
            other = await login.connect("127.0.0.2")
            await other.log_in()
            assert await oldest.is_closed()
            await newer.log_in()
            reasons = {"reason": "unauthenticated"}
            assert login.count("penstock_connections_closed_total", reasons) == 1
