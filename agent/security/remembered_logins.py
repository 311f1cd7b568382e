"""Logins over HTTP that succeeded, remembered for a while, so that a client's next request is not checked again.

What the client showed is kept as a keyed digest alone. A login is forgotten when its time is over, when it no longer
holds (its credential changed, or its issuer's keys did), and first of all where others take its place.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from protocol.auth.principals import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedLogin:
    """One login."""

    principal: Principal
    groups: tuple[Principal, ...] = ()
    until_s: float
    """The monotonic time at which it is forgotten."""
    is_current: Callable[[], bool]
    """Whether what it was proved by still holds."""


class RememberedLogins:
    """The logins by what clients showed."""

    def __init__(self, digest_key: bytes, *, count_max: int) -> None:
        """`digest_key` is random."""
        self._digest_key = digest_key
        self._count_max = count_max
        self._logins: OrderedDict[bytes, RememberedLogin] = OrderedDict()

    def find(self, shown: str, now_s: float) -> RememberedLogin | None:
        """The login of a client that shows this text; None where it has to be checked."""
        digest = self._digest(shown)
        login = self._logins.get(digest)
        if login is not None and (login.until_s <= now_s or not login.is_current()):
            del self._logins[digest]
            return None
        return login

    def remember(self, shown: str, login: RememberedLogin) -> None:
        """Keep a login."""
        digest = self._digest(shown)
        self._logins[digest] = login
        self._logins.move_to_end(digest)
        if len(self._logins) > self._count_max:
            self._logins.popitem(last=False)

    def _digest(self, shown: str) -> bytes:
        return hmac.digest(self._digest_key, shown.encode(), hashlib.sha256)
