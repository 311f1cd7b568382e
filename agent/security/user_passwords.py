"""Checks of users' passwords over HTTP (Basic): the same users, threads and delays as PLAIN has on the Kafka port."""

from collections.abc import Awaitable, Callable

from agent.runtime.clock import Clock
from agent.security.connections.failure_delays import FailureDelays
from agent.security.password_checks import PasswordChecks
from agent.security.plain_users import PlainUsers
from agent.security.scram_accounts import CredentialSource
from protocol.auth.sasl_exchange import PasswordCheck
from protocol.limits import HTTP_FAILED_LOGIN_SECONDS


class UserPasswords:
    """The passwords of the cluster's users, and of the file of users for PLAIN."""

    def __init__(
        self,
        *,
        passwords: PasswordChecks,
        source: CredentialSource,
        plain_users: PlainUsers | None,
        failures: FailureDelays,
        before_login: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._passwords = passwords
        self._source = source
        self._plain_users = plain_users
        self._failures = failures
        self._before_login = before_login
        self._clock = clock

    async def is_current(self, user: str, password: str) -> Callable[[], bool] | None:
        """None where the password is wrong. Otherwise a function: whether the credential that it fits still holds."""
        await self._before_login()  # whether or not the user is known (safety rule S16)
        proof = await self._passwords.identity(PasswordCheck(user=user, password=password))
        if proof is None:
            return None
        _, key = proof
        if key is None:
            plain_users = self._plain_users
            assert plain_users is not None, "only a user of the file has no credential in the state"
            verifier = plain_users.credential(user)
            return lambda: verifier is not None and plain_users.credential(user) == verifier
        credential = self._source.credentials().get(key)
        return lambda: credential is not None and self._source.credentials().get(key) == credential

    def failure_delay_s(self, address: str) -> float:
        """Counts a failure of an address, and returns for how many seconds its answer waits."""
        return self._failures.delay_s(address, HTTP_FAILED_LOGIN_SECONDS, self._clock.monotonic_s())
