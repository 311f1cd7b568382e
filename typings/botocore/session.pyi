from datetime import datetime
from typing import Protocol, TypedDict

from botocore.config import Config
from botocore.credentials import Credentials

class SessionKeys(TypedDict):
    AccessKeyId: str
    SecretAccessKey: str
    SessionToken: str
    Expiration: datetime

class AssumedRole(TypedDict):
    Credentials: SessionKeys

class StsClient(Protocol):
    def assume_role(
        self, *, RoleArn: str, RoleSessionName: str, DurationSeconds: int, Policy: str = ...
    ) -> AssumedRole: ...
    def close(self) -> None: ...

class Session:
    def get_config_variable(self, logical_name: str) -> str | None: ...
    def set_config_variable(self, logical_name: str, value: str) -> None: ...
    def get_credentials(self) -> Credentials | None: ...
    def create_client(
        self,
        service_name: str,
        *,
        region_name: str,
        endpoint_url: str | None,
        aws_access_key_id: str | None,
        aws_secret_access_key: str | None,
        aws_session_token: str | None = ...,
        verify: str | None = ...,
        config: Config | None = ...,
    ) -> StsClient: ...

def get_session() -> Session: ...
