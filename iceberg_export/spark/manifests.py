"""The sources of tail manifests for a plan: the object in the bucket, or for tenants an agent.

Rule: a reader never goes back to an older manifest. The object in the bucket is overwritten, and an agent that was
suspended may put an older one; an agent that answers a tenant has asked the ledger first.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from iceberg_export.spark.bucket import AgentBucket, Bucket
from iceberg_export.spark.options import OptionError, TopicSubscription
from iceberg_export.spark.tenant.agent_store import tail_prefix
from iceberg_export.spark.tenant.topics import listed_topics
from iceberg_export.tail.manifest import TailManifest, TailTopic, TailUnreadable, decode_manifest
from protocol.limits import SPARK_AGENT_LOOKS_APART_SECONDS, SPARK_LOOKS_APART_SECONDS, SPARK_MANIFEST_READS_MAX
from storage.object_store import ObjectMissing
from storage.refs import TAIL_KEY


class ManifestSource(Protocol):
    """Reads manifests."""

    @property
    def name(self) -> str:
        """The name of the source, for messages: `the bucket`."""
        ...

    @property
    def missing_hint(self) -> str:
        """Why a topic may be missing in a manifest, for messages."""
        ...

    @property
    def apart_s(self) -> float:
        """The least time between two reads of a stream."""
        ...

    def read(self) -> TailManifest:
        """A manifest of now. Raises `StoreError`; `OptionError` where there is none."""
        ...


class BucketManifests:
    """Implements `ManifestSource` with the object that an agent puts into the bucket. For one thread."""

    name = "the bucket"
    missing_hint = "a new topic appears within seconds"
    apart_s = SPARK_LOOKS_APART_SECONDS

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._decoded: tuple[bytes, TailManifest] | None = None
        """The bytes that were read last, and their manifest: equal bytes are not decoded again."""

    def read(self) -> TailManifest:
        attempts = 0
        while True:
            try:
                content = self._bucket.get(TAIL_KEY)
                if self._decoded is not None and content == self._decoded[0]:
                    return self._decoded[1]
                manifest = decode_manifest(content)
            except ObjectMissing as error:
                raise OptionError(
                    "the bucket has no tail manifest: check its URL, and whether a broker has run on it; the agents "
                    "write one within seconds"
                ) from error
            # A store may return an object that is half overwritten, so it is read again before the query fails.
            except TailUnreadable:
                attempts += 1
                if attempts == SPARK_MANIFEST_READS_MAX:
                    raise
            else:
                self._decoded = content, manifest
                return manifest
            self._bucket.pause(0.1)


class AgentManifests:
    """Implements `ManifestSource` with an agent's answer about the topics of a subscription. For one thread.

    A topic that the user may not describe is missing in it, and one that it may not read is an error.
    """

    apart_s = SPARK_AGENT_LOOKS_APART_SECONDS

    def __init__(self, bucket: AgentBucket, subscription: TopicSubscription) -> None:
        self._bucket = bucket
        self._subscription = subscription
        self.name = f"the agent at {bucket.agent.url}"
        self.missing_hint = "or the user may not describe it"

    def read(self) -> TailManifest:
        return self._bucket.run(self._read())

    async def _read(self) -> TailManifest:
        agent, names = self._bucket.agent, self._subscription.names
        if not names:
            listed = await listed_topics(agent)
            names = tuple(topic.name for topic in listed if self._subscription.matches(topic.name))
        response = await agent.post("/api/tail", json.dumps({"topics": names}).encode())
        manifest = decode_manifest(response.body)
        return replace(manifest, topics=_with_prefixes(manifest.topics))


def _with_prefixes(topics: Sequence[TailTopic]) -> tuple[TailTopic, ...]:
    """The topics, with keys by which `AgentStore` knows whose bytes they are."""
    return tuple(
        replace(
            topic,
            partitions=tuple(
                replace(partition, chunks=partition.chunks.with_key_prefix(tail_prefix(topic.name)))
                for partition in topic.partitions
            ),
        )
        for topic in topics
    )
