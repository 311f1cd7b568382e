"""Two tenants of one cluster and one bucket: each reads its own table by its own keys, and learns of nothing else."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import obstore
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic
from obstore.store import S3Store
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError, UnauthorizedError

from tests.support.lake.archiving import AT_ONCE, archive_by_http
from tests.support.processes import provided
from tests.support.services.local_services import PENSTOCK, Minio, Penstock, PenstockFactory

ADMIN, ALICE, BOB = ("0123456789abcdef" + name for name in ("admin", "alice", "bob"))
TOKENS = f"User:admin {ADMIN}\nUser:alice {ALICE}\nUser:bob {BOB}\n"
USERS = """
[[users]]
name = "admin"
password = "of the admin"
mechanism = "SCRAM-SHA-256"
"""
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "admin",
    "sasl.password": "of the admin",
}
SECONDS_MAX = 30
RECORDS_COUNT = 20

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
"""Of what PyIceberg leaves open, and of what it uses of others."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, minio: Minio) -> Iterator[Penstock]:
    """A broker with an archived topic of each tenant. Alice may read hers and describe Bob's second one."""
    provided(PENSTOCK)
    folder = tmp_path_factory.mktemp("tenants")
    (folder / "tokens").write_text(TOKENS)
    (folder / "users.toml").write_text(USERS)
    options = {
        **AT_ONCE,
        "http-token-file": str(folder / "tokens"),
        "catalog-vended-credentials": "sts",
        "bootstrap-users": str(folder / "users.toml"),
    }
    with ExitStack() as stack:
        store = f"s3://{minio.make_bucket('tenants')}/a/prefix"
        broker = PenstockFactory(folder=folder, stack=stack)(
            listen="SASL_PLAINTEXT://127.0.0.1:0",
            options=options,
            settings={"super.users": "User:admin"},
            store=store,
            env=minio.settings,
        )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **LOGIN})
        for future in admin.create_topics([NewTopic(name, 1) for name in ("alices", "bobs", "shown")]).values():
            future.result(SECONDS_MAX)
        acls = [acl("alices", "alice"), acl("bobs", "bob"), acl("shown", "alice", AclOperation.DESCRIBE)]
        for future in admin.create_acls(acls).values():
            future.result(SECONDS_MAX)
        producer = Producer({"bootstrap.servers": broker.bootstrap, **LOGIN})
        for name in ("alices", "bobs"):
            for number in range(RECORDS_COUNT):
                producer.produce(name, str(number))
        assert producer.flush(SECONDS_MAX) == 0
        for name in ("alices", "bobs"):
            archive_by_http(broker, name, ADMIN)
        yield broker


def acl(topic: str, user: str, operation: AclOperation = AclOperation.READ) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


def catalog(broker: Penstock, token: str) -> RestCatalog:
    return RestCatalog("penstock", uri=f"http://{broker.http}/iceberg", token=token)


def request(broker: Penstock, method: str, path: str, authorization: str = "") -> tuple[int, str]:
    """The status and the body of a response."""
    headers = {"Content-Type": "application/json", **({"Authorization": authorization} if authorization else {})}
    body = b"{}" if method == "POST" else None
    asked = urllib.request.Request(f"http://{broker.http}{path}", body, headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=SECONDS_MAX) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_tenant_sees_and_reads_its_own_tables(cluster: Penstock) -> None:
    for token, names in ((ALICE, ["alices", "shown"]), (BOB, ["bobs"]), (ADMIN, ["alices", "bobs", "shown"])):
        found = catalog(cluster, token)
        assert sorted(name for _, name in found.list_tables("lake")) == names
        assert found.load_table(f"lake.{names[0]}").scan().count() == RECORDS_COUNT


def test_a_tenants_token_opens_nothing_of_others(cluster: Penstock) -> None:
    alices = catalog(cluster, ALICE)
    with pytest.raises(NoSuchTableError):
        alices.load_table("lake.bobs")
    assert not alices.table_exists("lake.bobs")
    assert alices.table_exists("lake.shown")
    with pytest.raises(ForbiddenError, match="READ on topic shown"):
        alices.load_table("lake.shown")
    with pytest.raises(ForbiddenError, match="ALTER_CONFIGS"):
        alices.load_table("lake.alices").transaction().set_properties(owner="alice").commit_transaction()
    with pytest.raises(UnauthorizedError):
        catalog(cluster, "x" * 32)


def test_a_tenants_keys_open_nothing_of_others(cluster: Penstock, minio: Minio) -> None:
    """The keys of one table on another's files, on the intake and on the ledger, and to write."""
    mine, others = catalog(cluster, ALICE).load_table("lake.alices"), catalog(cluster, ADMIN).load_table("lake.bobs")
    bucket = urlsplit(mine.metadata_location).netloc
    keys = S3Store(
        bucket,
        endpoint=minio.settings["AWS_ENDPOINT_URL"],
        access_key_id=mine.io.properties["s3.access-key-id"],
        secret_access_key=mine.io.properties["s3.secret-access-key"],
        session_token=mine.io.properties["s3.session-token"],
        region="us-east-1",
        client_options={"allow_http": True},
    )
    own_key = urlsplit(mine.metadata_location).path.lstrip("/")
    assert obstore.get(keys, own_key).bytes()
    for key in (urlsplit(others.metadata_location).path.lstrip("/"), "a/prefix/cluster.json", "a/prefix/intake/1/0"):
        with pytest.raises(Exception, match=r"403|Access Denied|denied"):
            obstore.get(keys, key).bytes()
    with pytest.raises(Exception, match=r"403|Access Denied|denied"):
        obstore.put(keys, own_key, b"mine")
    with pytest.raises(Exception, match=r"403|Access Denied|denied"):
        obstore.delete(keys, own_key)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/metrics", 403),
        ("GET", "/api/state", 403),
        ("GET", "/api/topics/bobs", 404),
        ("GET", "/api/lake/bobs", 404),
        ("GET", "/api/lake/bobs/index", 404),
        ("GET", "/api/lake/shown/rewrites?purpose=rewrite", 403),
        ("POST", "/api/lake/alices/rewrites", 403),
        ("POST", "/api/lake/alices/rebuild", 403),
        ("POST", "/api/audit", 403),
        ("GET", "/api/inspect/state", 403),
        ("GET", "/api/inspect/objects", 403),
        ("GET", "/api/inspect/ledger", 403),
        ("GET", "/api/inspect/chunks?topic=alices", 403),
        ("GET", "/api/inspect/object?key=cluster.json", 403),
        ("GET", "/iceberg/v1/namespaces/lake/tables/bobs/credentials", 404),
        ("GET", "/schema-registry/subjects/bobs-value/versions", 404),
        ("GET", "/schema-registry/config", 403),
    ],
)
def test_a_token_without_rights_is_refused(cluster: Penstock, method: str, path: str, status: int) -> None:
    answered, text = request(cluster, method, path, f"Bearer {ALICE}")
    assert answered == status, text
    assert request(cluster, method, path)[0] == 401
    assert request(cluster, method, path, f"Bearer {ALICE}x")[0] == 401


def test_a_user_of_the_cluster_logs_in_by_its_password(cluster: Penstock) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **LOGIN})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("alice", info, b"wonderland", b"a salt")
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(SECONDS_MAX)
    status, text = request(cluster, "GET", "/api/topics", basic("alice", "wonderland"))
    assert [row["name"] for row in json.loads(text)["topics"]] == ["alices", "shown"]
    assert status == 200
    assert request(cluster, "GET", "/api/topics", basic("alice", "other"))[0] == 401
    assert request(cluster, "GET", "/api/topics", basic("carol", "wonderland"))[0] == 401


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_right_that_is_revoked_ends_at_once(cluster: Penstock) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **LOGIN})
    for future in admin.create_acls([acl("shown", "bob")]).values():
        future.result(SECONDS_MAX)
    bobs = catalog(cluster, BOB)
    assert bobs.load_table("lake.shown").name() == ("lake", "shown")
    pattern = AclBindingFilter(
        ResourceType.TOPIC,
        "shown",
        ResourcePatternType.LITERAL,
        "User:bob",
        None,  # type: ignore[arg-type]  # any host, as its documentation has it
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for future in admin.delete_acls([pattern]).values():
        future.result(SECONDS_MAX)
    with pytest.raises(NoSuchTableError):
        bobs.load_table("lake.shown")
