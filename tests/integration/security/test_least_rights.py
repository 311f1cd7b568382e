"""The policies of docs/operations/access-to-storage.md: an agent works with these rights, and can do no more."""

import asyncio
import json
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import obstore
import pytest
from aetcd.rpc import rpc_pb2, rpc_pb2_grpc
from confluent_kafka import Consumer, Producer
from obstore.store import S3Store

from tests.support.lake.archiving import archive_by_http
from tests.support.processes import START_SECONDS_MAX, Process, provided
from tests.support.services.etcd import Etcd
from tests.support.services.etcd_users import require_password
from tests.support.services.local_services import PENSTOCK, READY, Minio, Penstock
from tests.support.services.minio_credentials import keys_of_policy
from tools.steps import ROOT

PAGE = ROOT / "docs" / "operations" / "access-to-storage.md"
PREFIX = "a/prefix"
PASSWORD = "s3cret"
SECONDS_MAX = 30.0
VALUES = [str(number).encode() for number in range(20)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """An agent with least rights, and a bucket that has more than its prefix."""

    broker: Penstock
    bucket: str
    etcd: str


def policy(heading: str, bucket: str) -> str:
    """The policy in the section of the page, for this bucket."""
    section = PAGE.read_text(encoding="utf-8").partition(f"### {heading}\n")[2].partition("\n### ")[0]
    found = re.search(r"```json\n(.+?)```", section, re.DOTALL)
    assert found is not None, f"the page has no policy in the section {heading!r}"
    text = found.group(1).replace("BUCKET", bucket).replace("PREFIX", PREFIX)
    return json.dumps(json.loads(text))


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory, minio: Minio) -> Iterator[Cell]:
    folder, bucket = tmp_path_factory.mktemp("least"), minio.make_bucket("least-rights")
    with Etcd(folder / "etcd", options=["--auto-compaction-retention", "5m"]) as etcd:
        endpoint = etcd.endpoints[0]
        asyncio.run(ask_for_passwords(endpoint))
        command: list[str | Path] = [provided(PENSTOCK), "agent", "--name", "a", "--log-level", "info"]
        command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ledger", f"etcd://{endpoint}/c"]
        command += ["--ledger-user", "agents", "--store", f"s3://{bucket}/{PREFIX}"]
        env = {
            **minio.settings,
            **keys_of_policy(minio, policy("Agents", bucket)),
            "PENSTOCK_LEDGER_PASSWORD": PASSWORD,
        }
        with Process(command, folder, name="agent", env=env) as process:
            process.wait_until(lambda: READY.search(process.stdout) is not None, "agent", seconds_max=START_SECONDS_MAX)
            match = READY.search(process.stdout)
            assert match is not None
            broker = Penstock(bootstrap=match.group(1), http=match.group(2), data=folder, process=process)
            yield Cell(broker=broker, bucket=bucket, etcd=endpoint)


async def ask_for_passwords(endpoint: str) -> None:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        await require_password(channel, users={"agents": (PASSWORD, b"/penstock/c/")})


def test_an_agent_does_all_its_work_with_them(cell: Cell) -> None:
    producer = Producer({"bootstrap.servers": cell.broker.bootstrap})
    for value in VALUES:
        producer.produce("orders", value)
    assert producer.flush(SECONDS_MAX) == 0
    assert archive_by_http(cell.broker, "orders") == len(VALUES)
    consumer = Consumer({"bootstrap.servers": cell.broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    received = consumer.consume(len(VALUES), SECONDS_MAX)
    consumer.close()
    assert sorted(int(message.value() or b"") for message in received) == list(range(len(VALUES)))
    assert "fails" not in cell.broker.process.stderr


def bucket_of(minio: Minio, cell: Cell, heading: str) -> S3Store:
    keys = keys_of_policy(minio, policy(heading, cell.bucket))
    return S3Store(
        cell.bucket,
        endpoint=minio.endpoint,
        access_key_id=keys["AWS_ACCESS_KEY_ID"],
        secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
        session_token=keys["AWS_SESSION_TOKEN"],
        region="us-east-1",
        client_options={"allow_http": True},
    )


def denied(call: Callable[[], object]) -> None:
    with pytest.raises(Exception, match=r"403|Access Denied|denied"):
        call()


def listed(store: S3Store, prefix: str) -> list[str]:
    return [row["path"] for rows in obstore.list(store, prefix) for row in rows]


def test_the_keys_of_agents_open_nothing_beside_the_prefix(cell: Cell, minio: Minio) -> None:
    (minio.data / cell.bucket / "other").mkdir(exist_ok=True)
    store = bucket_of(minio, cell, "Agents")
    assert f"{PREFIX}/cluster.json" in listed(store, f"{PREFIX}/")
    for key in ("other/key", "cluster.json", f"{PREFIX}-2/key"):
        denied(lambda key=key: obstore.get(store, key).bytes())  # type: ignore[misc]
        denied(lambda key=key: obstore.put(store, key, b"forged"))  # type: ignore[misc]
        denied(lambda key=key: obstore.delete(store, key))  # type: ignore[misc]
    for prefix in ("", "other/", f"{PREFIX}-2/"):
        denied(lambda prefix=prefix: listed(store, prefix))  # type: ignore[misc]


def test_the_keys_of_trusted_jobs_read_records_and_no_more(cell: Cell, minio: Minio) -> None:
    agents, jobs = bucket_of(minio, cell, "Agents"), bucket_of(minio, cell, "Trusted Spark jobs")
    test_an_agent_does_all_its_work_with_them(cell)
    keys = listed(agents, f"{PREFIX}/")
    (file, *_) = (key for key in keys if key.endswith(".parquet"))
    assert obstore.get(jobs, file).bytes()
    (snapshot, *_) = (
        key for key in keys if not key.startswith(tuple(f"{PREFIX}/{name}/" for name in ("lake", "intake")))
    )
    denied(lambda: obstore.get(jobs, snapshot).bytes())
    denied(lambda: listed(jobs, f"{PREFIX}/lake/"))
    denied(lambda: obstore.put(jobs, file, b"forged"))
    denied(lambda: obstore.delete(jobs, file))


def test_the_doctor_warns_of_keys_that_list_more(cell: Cell, minio: Minio, tmp_path: Path) -> None:
    command: list[str | Path] = [PENSTOCK, "doctor", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    command += ["--store", f"s3://{cell.bucket}/{PREFIX}", "--data-dir", str(tmp_path)]

    def doctor(keys: Mapping[str, str]) -> str:
        env = {**minio.settings, **keys}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60).stdout

    assert f"the keys list all of {cell.bucket}, and an agent needs {PREFIX}/ alone" in doctor({})
    least = doctor(keys_of_policy(minio, policy("Agents", cell.bucket)))
    assert f"the keys list nothing of {cell.bucket} beside {PREFIX}/" in least


async def test_the_user_of_etcd_reaches_its_own_cluster_alone(cell: Cell) -> None:
    async with grpc.aio.insecure_channel(cell.etcd) as channel:
        auth, keys = rpc_pb2_grpc.AuthStub(channel), rpc_pb2_grpc.KVStub(channel)
        login = await auth.Authenticate(rpc_pb2.AuthenticateRequest(name="agents", password=PASSWORD))
        metadata = (("token", login.token),)
        own = await keys.Range(rpc_pb2.RangeRequest(key=b"/penstock/c/", range_end=b"/penstock/c0"), metadata=metadata)
        assert own.kvs
        attempts: list[Callable[[], Awaitable[object]]] = [
            lambda: keys.Range(rpc_pb2.RangeRequest(key=b"\0", range_end=b"\0"), metadata=metadata),
            lambda: keys.Range(rpc_pb2.RangeRequest(key=b"/penstock/d/head"), metadata=metadata),
            lambda: keys.Put(rpc_pb2.PutRequest(key=b"/penstock/d/head", value=b"forged"), metadata=metadata),
            lambda: keys.DeleteRange(rpc_pb2.DeleteRangeRequest(key=b"/penstock/d/head"), metadata=metadata),
            lambda: keys.Compact(rpc_pb2.CompactionRequest(revision=1), metadata=metadata),
            lambda: auth.UserAdd(rpc_pb2.AuthUserAddRequest(name="eve", password="x"), metadata=metadata),
            lambda: auth.RoleAdd(rpc_pb2.AuthRoleAddRequest(name="root-too"), metadata=metadata),
        ]
        for attempt in attempts:
            with pytest.raises(grpc.aio.AioRpcError, match="permission denied"):
                await attempt()
