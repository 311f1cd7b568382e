"""A tenant reads its topic through an agent: the rows that a reader of the bucket gets, and no other topic's."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from confluent_kafka.admin._acl import AclOperation

from iceberg_export.spark.bounds import LossReporter, plan_ranges, resolve_batch
from iceberg_export.spark.bucket import AgentBucket, open_agent, open_bucket
from iceberg_export.spark.lake import SparkLake
from iceberg_export.spark.manifests import AgentManifests
from iceberg_export.spark.options import OptionError, ReadOptions, parse_options
from iceberg_export.spark.planning import FilePiece, Piece, Split, TailPiece
from iceberg_export.spark.rows import Selection, read_split
from storage.object_store import ObjectMissing, StoreDenied, StoreError
from tests.support.security.tenants import ADMIN, ALICE, BOB, TenantBroker, acl, tenant_broker
from tests.support.services.local_services import Minio

Row = tuple[str, int, int, bytes]
COLUMNS = ("topic", "partition", "offset", "value")
ROUNDS = 3


@pytest.fixture(scope="module", params=["s3", "folder"])
def tenants(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantBroker]:
    """Topics whose records lie in the archive and in the tail, and in the tail in objects of both tenants."""
    folder = tmp_path_factory.mktemp("tenant-reads")
    store, env = None, None
    if request.param == "s3":
        minio: Minio = request.getfixturevalue("minio")
        store, env = f"s3://{minio.make_bucket('tenant-reads')}/a/prefix", minio.settings
    with tenant_broker(folder, store=store, env=env) as tenants:
        tenants.create("alices", "bobs", "shown", partitions=2)
        tenants.allow(acl("alices", "alice"), acl("bobs", "bob"), acl("shown", "alice", AclOperation.DESCRIBE))
        produce(tenants, "archived")
        tenants.archive("alices", "bobs")
        produce(tenants, "tail")
        yield tenants


def produce(tenants: TenantBroker, word: str) -> None:
    """Records of both topics in turn, whose chunks share objects."""
    producer = tenants.producer(**{"linger.ms": 5})
    for number in range(ROUNDS * 100):
        for topic in ("alices", "bobs"):
            producer.produce(topic, f"{topic}-{word}-{number}".encode(), partition=number % 2)
    assert producer.flush(30) == 0


def options_of(tenants: TenantBroker, token: str, **options: str) -> ReadOptions:
    given = {"penstock.server": f"http://{tenants.broker.http}", "penstock.token": token, **options}
    return parse_options(given, {}, is_stream=False)


def tenant_lake(options: ReadOptions) -> tuple[SparkLake, AgentBucket]:
    assert options.agent is not None
    bucket = open_agent(options.agent)
    return SparkLake(bucket, manifests=AgentManifests(bucket, options.subscription)), bucket


def plan(lake: SparkLake, options: ReadOptions) -> list[Piece]:
    losses = LossReporter(is_fatal=True)
    return plan_ranges(lake, resolve_batch(lake, options, losses), losses, manifest=lake.newest)


def rows(lake: SparkLake, pieces: Sequence[Piece]) -> list[Row]:
    """All rows of the pieces. A second plan would be an error."""
    found: list[Row] = []
    for batch in read_split(lake.bucket, Split(pieces=tuple(pieces)), Selection(columns=COLUMNS), lambda _: []):
        found += zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
    return sorted(found)


def test_a_tenant_reads_the_rows_that_a_reader_of_the_bucket_gets(tenants: TenantBroker, minio: Minio) -> None:
    options = options_of(tenants, ALICE, subscribe="alices")
    lake, _ = tenant_lake(options)
    pieces = plan(lake, options)
    assert {type(piece) for piece in pieces} == {FilePiece, TailPiece}
    read = rows(lake, pieces)
    assert [row[3] for row in read if row[1] == 1][-1] == b"alices-tail-299"
    assert len(read) == 2 * ROUNDS * 100

    trusted = trusted_lake(tenants, minio)

    def has_all() -> bool:
        with suppress(OptionError):  # the broker has only just started, and wrote no tail manifest yet
            return len(trusted_rows(trusted, "alices")) == len(read)
        return False

    tenants.broker.process.wait_until(has_all, "the tail manifest")
    assert trusted_rows(trusted, "alices") == read


def trusted_lake(tenants: TenantBroker, minio: Minio) -> SparkLake:
    folder = tenants.broker.data / "store"
    if folder.exists():
        return SparkLake(open_bucket(folder.as_uri(), {}))
    return SparkLake(open_bucket("s3://tenant-reads/a/prefix", minio.settings))


def trusted_rows(lake: SparkLake, topic: str) -> list[Row]:
    options = parse_options({"path": "file:///unused", "subscribe": topic}, {}, is_stream=False)
    return rows(lake, plan(lake, options))


def test_a_pattern_matches_what_the_tenant_may_describe(tenants: TenantBroker) -> None:
    options = options_of(tenants, BOB, subscribePattern=".*s")
    lake, _ = tenant_lake(options)
    assert {row[0] for row in rows(lake, plan(lake, options))} == {"bobs"}
    nothing = options_of(tenants, BOB, subscribePattern="alice.*")
    assert plan(tenant_lake(nothing)[0], nothing) == []


def test_an_administrator_reads_several_topics_of_one_position(tenants: TenantBroker) -> None:
    options = options_of(tenants, ADMIN, subscribe="alices,bobs,shown")
    lake, _ = tenant_lake(options)
    read = rows(lake, plan(lake, options))
    assert {row[0] for row in read} == {"alices", "bobs"}
    assert len(read) == 2 * 2 * ROUNDS * 100


def test_another_tenants_topic_is_answered_as_one_that_does_not_exist(tenants: TenantBroker) -> None:
    for topic in ("bobs", "none"):
        options = options_of(tenants, ALICE, subscribe=topic)
        with pytest.raises(OptionError, match=rf"the agent at http://\S+ has no topic {topic} .*may not describe it"):
            plan(tenant_lake(options)[0], options)


def test_a_topic_that_may_be_described_alone_names_the_missing_right(tenants: TenantBroker) -> None:
    options = options_of(tenants, ALICE, subscribe="shown")
    with pytest.raises(StoreDenied, match=r"the right READ on topic shown is missing; .*kafka-acls\.sh"):
        plan(tenant_lake(options)[0], options)
    everything = options_of(tenants, ALICE, subscribePattern=".*")
    with pytest.raises(StoreDenied, match="READ on topic shown"):
        plan(tenant_lake(everything)[0], everything)


def test_a_wrong_token_says_what_to_give(tenants: TenantBroker) -> None:
    options = options_of(tenants, "x" * 32, subscribe="alices")
    with pytest.raises(
        StoreDenied, match=r"does not accept the login.*penstock\.token\.file.*penstock\.user"
    ) as caught:
        plan(tenant_lake(options)[0], options)
    assert "x" * 32 not in str(caught.value)


def test_a_plan_of_another_tenant_reads_nothing(tenants: TenantBroker) -> None:
    """A tenant that knows each key and each byte range of another one's plan."""
    options = options_of(tenants, BOB, subscribe="bobs")
    pieces = plan(tenant_lake(options)[0], options)
    _, alices = tenant_lake(options_of(tenants, ALICE, subscribe="alices"))
    for piece in pieces:
        if isinstance(piece, FilePiece):
            with pytest.raises((ObjectMissing, StoreDenied)):
                alices.get_range(piece.key, 0, 4)
            continue
        for part in piece.parts:
            for chunk in part.chunks:
                # By the name of the other's topic, and by her own.
                for key in (chunk.object_key, chunk.object_key.replace("tail/bobs/", "tail/alices/")):
                    with pytest.raises(ObjectMissing):
                        alices.get_range(key, chunk.byte_first, chunk.byte_count)
    for key in ("ledger/tail/current", "cluster.json", "tail/alices/ledger/tail/current", "tail/alices/cluster.json"):
        with pytest.raises(ObjectMissing):
            alices.get(key)
    with pytest.raises(StoreError):
        alices.run(alices.store.put("lake/mine", [b"mine"]))
    with pytest.raises(StoreError):
        alices.run(alices.store.delete([pieces[0].key if isinstance(pieces[0], FilePiece) else "lake/mine"]))


def signed_urls(
    tenants: TenantBroker, topic: str, token: str, ranges: list[list[object]]
) -> tuple[int, list[str] | None]:
    """The status of the response, and the URLs that an agent signs."""
    body = json.dumps({"ranges": ranges}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    asked = urllib.request.Request(f"http://{tenants.broker.http}/api/tail/{topic}/urls", body, headers)
    try:
        with urllib.request.urlopen(asked, timeout=30) as response:
            return response.status, json.load(response)["urls"]
    except urllib.error.HTTPError as error:
        return error.code, None


def read_url(url: str, *ranges: str) -> tuple[int, bytes]:
    address = urlsplit(url)
    with closing(HTTPConnection(address.netloc, timeout=30)) as connection:
        connection.putrequest("GET", f"{address.path}?{address.query}", skip_accept_encoding=True)
        for value in ranges:
            connection.putheader("Range", value)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.read()


def test_a_signed_url_reads_its_own_range_alone(tenants: TenantBroker) -> None:
    options = options_of(tenants, ALICE, subscribe="alices")
    lake, bucket = tenant_lake(options)
    tail = next(piece for piece in plan(lake, options) if isinstance(piece, TailPiece))
    chunk = tail.parts[0].chunks[0]
    key, first, count = chunk.object_key.removeprefix("tail/alices/"), chunk.byte_first, chunk.byte_count
    _, urls = signed_urls(tenants, "alices", ALICE, [[key, first, count]])
    if (tenants.broker.data / "store").exists():
        assert urls is None, "a bucket in a directory has no URLs"
        return
    tenants.broker.process.wait_until(
        lambda: signed_urls(tenants, "alices", ALICE, [[key, first, count]])[1] is not None, "the check of the store"
    )
    _, urls = signed_urls(tenants, "alices", ALICE, [[key, first, count], [key, 0, 8], [key, first, 1 << 30]])
    assert urls is not None
    url, *others = urls
    assert others == [None, None], "bytes of no chunk of the topic"
    own = f"bytes={first}-{first + count - 1}"
    status, content = read_url(url, own)
    assert (status, content) == (206, bucket.get_range(chunk.object_key, first, count))
    for ranges in (
        [f"bytes=0-{first}"],
        [f"bytes={first}-{first + count}"],
        [],
        ["bytes=0-"],
        [own, "bytes=0-7"],
        ["bytes=0-7", own],
    ):
        status, _ = read_url(url, *ranges)
        assert status in {400, 403}, ranges
    for changed in (url.replace("X-Amz-Expires=300", "X-Amz-Expires=3000"), url.replace(key, "cluster.json")):
        assert read_url(changed, own)[0] in {400, 403}
    assert signed_urls(tenants, "alices", BOB, [[key, first, count]]) == (404, None)
    assert signed_urls(tenants, "bobs", BOB, [[key, first, count]]) == (200, [None])


def test_a_plan_after_a_revocation_is_denied_at_once(tenants: TenantBroker) -> None:
    tenants.allow(acl("alices", "bob"))
    options = options_of(tenants, BOB, subscribe="alices")
    lake, bucket = tenant_lake(options)
    pieces = plan(lake, options)
    assert rows(lake, pieces)
    tenants.revoke("alices", "bob")
    with pytest.raises(OptionError, match="has no topic alices"):
        plan(lake, options)
    tail = next(piece for piece in pieces if isinstance(piece, TailPiece))
    chunk = tail.parts[0].chunks[0]
    with pytest.raises(ObjectMissing):
        bucket.get_range(chunk.object_key, chunk.byte_first, chunk.byte_count)
