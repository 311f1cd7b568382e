"""Two tenants of one cluster and one bucket: each reads its own table by its own keys, and learns of nothing else."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

import obstore
import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from obstore.store import S3Store
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError, UnauthorizedError

from tests.support.security.tenants import ADMIN, ALICE, BOB, TenantBroker, acl, tenant_broker
from tests.support.services.local_services import Minio, Penstock

SECONDS_MAX = 30
RECORDS_COUNT = 20

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
"""Of what PyIceberg leaves open, and of what it uses of others."""


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory, minio: Minio) -> Iterator[TenantBroker]:
    """A broker with an archived topic of each tenant. Alice may read hers and describe Bob's second one."""
    store = f"s3://{minio.make_bucket('tenants')}/a/prefix"
    folder = tmp_path_factory.mktemp("tenants")
    with tenant_broker(folder, store=store, env=minio.settings, catalog_vended_credentials="sts") as tenants:
        tenants.create("alices", "bobs", "shown")
        tenants.allow(acl("alices", "alice"), acl("bobs", "bob"), acl("shown", "alice", AclOperation.DESCRIBE))
        for name in ("alices", "bobs"):
            tenants.produce(name, map(str, range(RECORDS_COUNT)))
        tenants.archive("alices", "bobs")
        yield tenants


@pytest.fixture
def cluster(tenants: TenantBroker) -> Penstock:
    return tenants.broker


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


def test_a_user_of_the_cluster_logs_in_by_its_password(tenants: TenantBroker, cluster: Penstock) -> None:
    admin = tenants.admin
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


def test_a_right_that_is_revoked_ends_at_once(tenants: TenantBroker) -> None:
    tenants.allow(acl("shown", "bob"))
    bobs = catalog(tenants.broker, BOB)
    assert bobs.load_table("lake.shown").name() == ("lake", "shown")
    tenants.revoke("shown", "bob")
    with pytest.raises(NoSuchTableError):
        bobs.load_table("lake.shown")
