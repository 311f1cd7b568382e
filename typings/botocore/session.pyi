from typing import Protocol

from botocore.credentials import Credentials

class StsClient(Protocol):
    def assume_role(
        self, *, RoleArn: str, RoleSessionName: str, DurationSeconds: int, Policy: str = ...
    ) -> dict[str, dict[str, str]]: ...

class Session:
    def get_config_variable(self, logical_name: str) -> str | None: ...
    def set_config_variable(self, logical_name: str, value: str) -> None: ...
    def get_credentials(self) -> Credentials | None: ...
    def create_client(
        self,
        service_name: str,
        *,
        region_name: str,
        endpoint_url: str,
        aws_access_key_id: str,
        aws_secret_access_key: str,
    ) -> StsClient: ...

def get_session() -> Session: ...
