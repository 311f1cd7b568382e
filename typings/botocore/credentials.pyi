from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

class ReadOnlyCredentials(NamedTuple):
    access_key: str
    secret_key: str
    token: str | None

class Credentials:
    method: str
    def __init__(self, access_key: str, secret_key: str, token: str | None = None) -> None: ...
    def get_frozen_credentials(self) -> ReadOnlyCredentials: ...

class RefreshableCredentials(Credentials):
    def __init__(
        self,
        access_key: str,
        secret_key: str,
        token: str | None,
        expiry_time: datetime,
        refresh_using: Callable[[], Mapping[str, str]],
        method: str,
    ) -> None: ...
    def refresh_needed(self, refresh_in: int | None = None) -> bool: ...
