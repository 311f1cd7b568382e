"""The folders of tables as a tenant reads them: with keys that the agent's catalog vends, renewed before they expire.

Rule: keys are renewed after three quarters of the time that was left when they came, by the loop's clock and the
agent's time, so a machine with a wrong date renews in time. While an agent is away keys are used until they expire. A
denied renewal is an error at once, although the keys still hold: the right was revoked.
Source: Iceberg's REST specification, "loadCredentials"; `agent.http.iceberg.vended_credentials`.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from iceberg_export.spark.tenant.client import AgentClient, AgentResponse
from protocol.limits import SPARK_KEYS_RENEWED_SHARE, SPARK_KEYS_SECONDS_UNKNOWN, SPARK_NO_KEYS_SECONDS
from storage.object_store import ObjectStore, StoreMisconfigured, StoreUnavailable
from storage.refs import LAKE_PREFIX

_KEYS: Final = {
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_REGION": "client.region",
    "AWS_ENDPOINT_URL": "s3.endpoint",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "s3.force-virtual-addressing",
}
"""The AWS variables of a store by the catalog's properties (`agent.lake.file_io`)."""
OpenStore = Callable[[str, Mapping[str, str]], ObjectStore]
"""Opens the store of a bucket's URL, with AWS variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VendedFolder:
    """A folder of the bucket, and a store that may read it. Keys are relative to the bucket's root."""

    folder: str
    """`lake/TOPIC-ID/`."""
    store: ObjectStore = field(repr=False)


@dataclass(slots=True, kw_only=True)
class _Kept:
    """The answer for a topic: None where the agent vends no keys."""

    folder: VendedFolder | None
    renew_at_s: float
    expires_at_s: float


class VendedFolders:
    """The folders of the topics that one tenant reads. For one event loop."""

    def __init__(
        self, client: AgentClient, open_store: OpenStore, monotonic_s: Callable[[], float], store_ca_file: str
    ) -> None:
        self._client = client
        self._open_store = open_store
        self._monotonic_s = monotonic_s
        self._store_ca_file = store_ca_file
        self._kept: dict[str, _Kept] = {}
        self._renewing: dict[str, asyncio.Lock] = {}

    async def folder(self, topic: str) -> VendedFolder | None:
        """The folder of the topic's table; None where the agent vends no keys for it.

        Raises `StoreDenied` where the rights are missing, `ObjectMissing` where there is no such topic.
        """
        kept = self._kept.get(topic)
        if kept is not None and self._monotonic_s() < kept.renew_at_s:
            return kept.folder
        async with self._renewing.setdefault(topic, asyncio.Lock()):
            kept = self._kept.get(topic)
            if kept is None or self._monotonic_s() >= kept.renew_at_s:
                kept = self._kept[topic] = await self._renewed(topic, kept)
            return kept.folder

    def forget(self, topic: str, rejected: VendedFolder) -> None:
        """Do not use these keys again: the store rejected them."""
        kept = self._kept.get(topic)
        if kept is not None and kept.folder is rejected:
            del self._kept[topic]

    async def _renewed(self, topic: str, before: _Kept | None) -> _Kept:
        try:
            response = await self._client.get(f"/iceberg/v1/namespaces/lake/tables/{quote(topic, safe='')}/credentials")
        except StoreUnavailable:
            if before is None or self._monotonic_s() >= before.expires_at_s:
                raise
            return before
        return self._read(response)

    def _read(self, response: AgentResponse) -> _Kept:
        now_s = self._monotonic_s()
        match response.json().get("storage-credentials"):
            case []:
                until_s = now_s + SPARK_NO_KEYS_SECONDS
                return _Kept(folder=None, renew_at_s=until_s, expires_at_s=until_s)
            case [{"prefix": str(prefix), "config": {**config}}, *_] if prefix.startswith("s3://"):
                seconds = _seconds_left(config.get("s3.session-token-expires-at-ms"), response.date_ms)
                return _Kept(
                    folder=self._open(prefix, {str(name): str(value) for name, value in config.items()}),
                    renew_at_s=now_s + seconds * SPARK_KEYS_RENEWED_SHARE,
                    expires_at_s=now_s + seconds,
                )
            case _:
                raise StoreMisconfigured(
                    f"{self._client.url} vends no credentials of a form that this program knows: is it as new as the "
                    "agent?"
                )

    def _open(self, prefix: str, config: Mapping[str, str]) -> VendedFolder:
        root, slash, folder = prefix.rpartition(f"/{LAKE_PREFIX}")
        if not slash:
            raise StoreMisconfigured(f"the vended credentials are for {prefix}, which is no table's folder")
        variables = {name: config[key] for name, key in _KEYS.items() if key in config}
        variables["AWS_ALLOW_HTTP"] = "true"  # the agent names the endpoint, and uses it itself
        if self._store_ca_file:
            variables["AWS_CA_BUNDLE"] = self._store_ca_file
        return VendedFolder(folder=LAKE_PREFIX + folder, store=self._open_store(root, variables))


def _seconds_left(expires_ms: object, date_ms: int | None) -> float:
    """How long keys hold from now on, by the agent's time."""
    if date_ms is None or not isinstance(expires_ms, str) or not expires_ms.isdigit():
        return SPARK_KEYS_SECONDS_UNKNOWN
    return max(0.0, (int(expires_ms) - date_ms) / 1000)
