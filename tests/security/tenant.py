"""Two tenants of one cluster and one bucket, and what belongs to each. All names of a tenant begin with `NAME.`."""

import json
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from kio.static.primitive import Records

from protocol.api_versions import ApiKey
from tests.security.guarded_agent import create_own_token
from tests.security.guarded_requests import NO_ID, SECONDS, Names
from tests.support.clients.http_client import ask_http
from tests.support.clients.login_client import LoginClient, error_codes
from tests.support.records.plain_records import Record, make_batch
from tests.support.services.local_services import Minio, Penstock

ADMIN: Final = "admin"
VICTIM: Final = "victim"
ATTACKER: Final = "attacker"
SECRET: Final = "what-the-victim-alone-knows"
"""Is in each record, config, offset's text and schema of the victim."""


def token_of(user: str) -> str:
    """The bearer token of a user."""
    return f"token-of-the-tenant-{user}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenants:
    """The running cluster, and the connections of its users."""

    broker: Penstock
    minio: Minio
    admin: LoginClient
    victim: LoginClient
    attacker: LoginClient
    names: dict[str, Names]
    schemas: dict[str, dict[str, object]]
    """Id and guid of the schema of each tenant's values."""
    bucket: str
    prefix: str

    def produce_to_intake(self) -> None:
        """Records of both tenants that the archive does not have yet, at the same time: into one object."""
        for client, user in ((self.victim, VICTIM), (self.attacker, ATTACKER)):
            client.send_request(ApiKey.PRODUCE, 9, _record(user))
        for client in (self.victim, self.attacker):
            assert set(error_codes(client.receive_answer(ApiKey.PRODUCE, 9))) == {0}

    def objects(self) -> list[str]:
        """The keys of all objects of the bucket, by the store's own folder."""
        root = self.minio.data / self.bucket
        return sorted(str(path.parent.relative_to(root)) for path in root.rglob("xl.meta"))

    def keys(self, pattern: str) -> list[str]:
        """Keys below the prefix that match, without the prefix."""
        below = [key.removeprefix(self.prefix + "/") for key in self.objects()]
        return [key for key in below if re.match(pattern, key)]

    def ask_path(self, user: str, method: str, path: str, body: object = None) -> tuple[int, str]:
        """The status and text of an answer to a user's token."""
        answer = ask_http(self.broker.http, method, path, authorization=f"Bearer {token_of(user)}", body=body)
        return answer.status, answer.text


def _record(user: str) -> dict[str, object]:
    text = SECRET if user == VICTIM else "what-the-attacker-wrote"
    batch = make_batch([Record(offset=number, timestamp=1, value=f"{text} {number}".encode()) for number in range(9)])
    topics = [{"name": f"{user}.topic", "partition_data": [{"index": 0, "records": Records(batch)}]}]
    return {"acks": -1, "timeout": timedelta(seconds=10), "topic_data": topics}


def prepare_tenant(client: LoginClient, broker: Penstock, user: str) -> tuple[Names, dict[str, object]]:
    """Makes a tenant's records, groups, transaction and schema by its own rights; the schema is returned, too."""
    topic, group, transactional_id = f"{user}.topic", f"{user}.group", f"{user}.transaction"
    consumers = f"{user}.consumers"
    asked = {"topics": [{"name": topic, "topic_id": NO_ID}], "allow_auto_topic_creation": False}
    described = client.ask(ApiKey.METADATA, 12, {**asked, "include_topic_authorized_operations": False})
    assert set(error_codes(client.ask(ApiKey.PRODUCE, 9, _record(user)))) == {0}
    committed = {"partition_index": 0, "committed_offset": 5, "committed_metadata": SECRET if user == VICTIM else ""}
    offsets = {"group_id": group, "member_id": "", "topics": [{"name": topic, "partitions": [committed]}]}
    assert set(error_codes(client.ask(ApiKey.OFFSET_COMMIT, 8, offsets))) == {0}
    joined = {"group_id": consumers, "member_id": user[0].upper() * 22, "member_epoch": 0, "topic_partitions": []}
    joined |= {"rebalance_timeout": SECONDS * 100, "subscribed_topic_names": [topic]}
    assert client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joined).error_code == 0
    begun = {"transactional_id": transactional_id, "transaction_timeout": SECONDS * 100}
    producer = client.ask(ApiKey.INIT_PRODUCER_ID, 4, begun)
    assert producer.error_code == 0
    create_own_token(client)
    field = "hidden" if user == VICTIM else "shown"
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": field, "type": "string"}]})
    path, shown = f"/schema-registry/subjects/{topic}-value/versions", f"Bearer {token_of(user)}"
    registered = ask_http(broker.http, "POST", path, authorization=shown, body={"schema": schema})
    assert registered.status == 200, registered
    names = Names(
        topic=topic,
        topic_id=described.topics[0].topic_id,
        group=group,
        transactional_id=transactional_id,
        consumer_group=consumers,
        user=user,
        missing=f"{user}.missing",
        doomed=f"{user}.doomed",
        created=f"{user}.created",
        node_id=int(described.brokers[0].node_id),
    )
    return names, registered.json
