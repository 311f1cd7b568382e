"""Checks of passwords for PLAIN, in a few threads: each takes milliseconds of PBKDF2, which lets go of the GIL.

A check beyond PASSWORD_CHECKS_MAX waits, and one beyond PASSWORD_CHECKS_WAITING_MAX fails at once: a stranger who sends
passwords costs at most these threads. A thousand clients that connect again at once may wait, as clients take a
rejection for final. An unknown user costs what a known one does.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from agent.security.plain_users import PlainUsers, Verifier
from agent.security.scram_accounts import CredentialKey, ScramAccounts
from protocol.auth.sasl_exchange import PasswordCheck, SaslIdentity
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.auth.scram_keys import is_password_of
from protocol.limits import PASSWORD_CHECKS_MAX, PASSWORD_CHECKS_WAITING_MAX


class PasswordChecks:
    """The checks of one agent."""

    def __init__(self, accounts: ScramAccounts, plain_users: PlainUsers | None = None) -> None:
        self._accounts = accounts
        self._plain_users = plain_users
        self._threads = ThreadPoolExecutor(PASSWORD_CHECKS_MAX, thread_name_prefix="password")
        self._pending_count = 0

    async def identity(self, check: PasswordCheck) -> tuple[SaslIdentity, CredentialKey | None] | None:
        """The user whom the password proves, and the credential that it fits; None where it proves none.

        The credential is None where it is one of the file of users.
        """
        if self._pending_count >= PASSWORD_CHECKS_MAX + PASSWORD_CHECKS_WAITING_MAX:
            return None
        in_file = self._in_file(check.user)
        # Whatever is deleted during a check, or changed: what is there afterwards decides.
        if in_file is not None:
            is_right = await self._is_password_of(in_file[1], check.password, in_file[0])
            return (SaslIdentity(name=check.user), None) if is_right and self._in_file(check.user) == in_file else None
        key, credential, is_known = self._accounts.password_credentials(check.user)
        is_right = await self._is_password_of(credential, check.password, key[1])
        is_current = self._accounts.source.credentials().get(key) == credential
        return (SaslIdentity(name=check.user), key) if is_right and is_known and is_current else None

    def _in_file(self, user: str) -> Verifier | None:
        return None if self._plain_users is None else self._plain_users.credential(user)

    async def _is_password_of(self, credential: ScramCredential, password: str, mechanism: ScramMechanism) -> bool:
        self._pending_count += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, is_password_of, credential, password, mechanism)
        finally:
            self._pending_count -= 1
