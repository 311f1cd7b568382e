"""What is set up wrongly is named, by the store, by an agent that starts, and by the doctor: against real MinIOs."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trustme

from agent.bucket.permissions import denied_operations
from benchmarks.measure.exposition import STORE_REQUESTS, scrape, total
from storage.object_store import StoreMisconfigured, StoreUnavailable
from storage.s3.settings import S3Settings
from storage.s3.store import S3Store
from tests.support.cluster.cluster import ClusterFactory
from tests.support.ports import free_port
from tests.support.services.local_services import PENSTOCK, Minio, MinioProcess, PenstockFactory
from tests.support.services.minio_credentials import limited_keys

KMS_KEY = "penstock-key:" + "A" * 43 + "="
SESSION_POLICY_ACTIONS = {
    "put": "s3:PutObject",
    "get": "s3:GetObject",
    "list": "s3:ListBucket",
    "delete": "s3:DeleteObject",
}


@pytest.fixture(scope="module")
def far_minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    """A MinIO in another region, with a key to encrypt objects."""
    server = MinioProcess(tmp_path_factory.mktemp("far-minio"))
    with server.start(env={"MINIO_SITE_REGION": "eu-west-1", "MINIO_KMS_SECRET_KEY": KMS_KEY}) as process:
        server.wait(process)
        yield server.server


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls_minio(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[Minio]:
    """A MinIO whose certificate a CA of its own has signed."""
    folder = tmp_path_factory.mktemp("tls-minio")
    certificates = folder / "certificates"
    certificates.mkdir()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(certificates / "private.key")
    issued.cert_chain_pems[0].write_to_path(certificates / "public.crt")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    server = MinioProcess(folder, certificates=certificates)
    with server.start() as process:
        server.wait(process)
        yield server.server


def store_on(minio: Minio, bucket: str, env: Mapping[str, str] | None = None) -> S3Store:
    return S3Store(S3Settings.from_environment(f"s3://{bucket}/p", {**minio.settings, **(env or {})}))


async def test_the_region_of_the_bucket_is_named(far_minio: Minio) -> None:
    store = store_on(far_minio, far_minio.make_bucket("regional"))
    with pytest.raises(StoreMisconfigured, match="AWS_REGION=eu-west-1"):
        await store.put("a", [b"x"])


@pytest.mark.parametrize(
    "encryption",
    [
        {"AWS_SERVER_SIDE_ENCRYPTION": "AES256"},
        {"AWS_SERVER_SIDE_ENCRYPTION": "aws:kms", "AWS_SSE_KMS_KEY_ID": "penstock-key"},
        {"AWS_SERVER_SIDE_ENCRYPTION": "aws:kms", "AWS_SSE_BUCKET_KEY_ENABLED": "true"},
    ],
    ids=["SSE-S3", "SSE-KMS", "default key"],
)
async def test_objects_are_encrypted_where_that_is_asked_for(far_minio: Minio, encryption: dict[str, str]) -> None:
    bucket = far_minio.make_bucket(f"encrypted-{len(os.listdir(far_minio.data))}")
    here = {"AWS_REGION": "eu-west-1"}
    store = store_on(far_minio, bucket, here | encryption)
    plain = b"these words are not found on the disk" * 100
    await store.put("a", [plain])
    assert await store.get_range("a", 6, 5) == b"words"
    await store_on(far_minio, bucket, here).put("b", [plain])
    on_disk = {
        key: b"".join(part.read_bytes() for part in (far_minio.data / bucket / "p" / key).rglob("*") if part.is_file())
        for key in ("a", "b")
    }
    assert (plain[:37] in on_disk["a"], plain[:37] in on_disk["b"]) == (False, True)


async def test_a_key_that_there_is_not_is_a_matter_of_configuration(minio: Minio) -> None:
    env = {"AWS_SERVER_SIDE_ENCRYPTION": "aws:kms", "AWS_SSE_KMS_KEY_ID": "none"}
    with pytest.raises(StoreMisconfigured, match="KMS"):
        await store_on(minio, minio.make_bucket("no-key"), env).put("a", [b"x"])


async def test_a_ca_of_one_s_own_is_trusted_where_it_is_named(tls_minio: Minio) -> None:
    bucket = tls_minio.make_bucket("trusted")
    env = {"AWS_CA_BUNDLE": str(tls_minio.data.parent / "authority.pem"), "AWS_ALLOW_HTTP": "false"}
    store = store_on(tls_minio, bucket, env)
    await store.put("a", [b"x"])
    assert await store.get("a") == b"x"
    assert await store.server_time_ms() is not None


async def test_a_certificate_that_nobody_signed_is_a_matter_of_configuration(tls_minio: Minio) -> None:
    with pytest.raises(StoreMisconfigured, match="AWS_CA_BUNDLE"):
        await store_on(tls_minio, tls_minio.make_bucket("untrusted")).put("a", [b"x"])


async def test_tls_and_none_are_distinguished(minio: Minio, tls_minio: Minio) -> None:
    plain = {"AWS_ENDPOINT_URL": tls_minio.endpoint.replace("https", "http")}
    with pytest.raises(StoreMisconfigured, match="write https://"):
        await store_on(tls_minio, "b-b-b", plain).put("a", [b"x"])
    encrypted = {"AWS_ENDPOINT_URL": minio.endpoint.replace("http", "https")}
    with pytest.raises(StoreMisconfigured, match="does not speak TLS"):
        await store_on(minio, "b-b-b", encrypted).put("a", [b"x"])


@pytest.mark.parametrize(("name", "text"), [("AWS_CA_BUNDLE", "no certificate"), ("AWS_CA_BUNDLE", None)])
def test_a_bundle_that_cannot_be_read_is_named(minio: Minio, tmp_path: Path, name: str, text: str | None) -> None:
    path = tmp_path / "bundle.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StoreMisconfigured, match=name):
        store_on(minio, "b-b-b", {name: str(path)})


@pytest.mark.parametrize("denied", SESSION_POLICY_ACTIONS)
async def test_what_a_bucket_denies_is_found_and_named(minio: Minio, denied: str) -> None:
    bucket = minio.make_bucket(f"denies-{denied}")
    actions = [action for operation, action in SESSION_POLICY_ACTIONS.items() if operation != denied]
    found = await denied_operations(store_on(minio, bucket, limited_keys(minio, bucket, actions)))
    assert [str(error).split()[0] for error in found] == [denied]
    assert SESSION_POLICY_ACTIONS[denied] in str(found[0])


def test_the_doctor_names_everything_that_a_bucket_denies(minio: Minio, tmp_path: Path) -> None:
    bucket = minio.make_bucket("denies-some")
    env = {**minio.settings, **limited_keys(minio, bucket, ["s3:PutObject", "s3:GetObject"])}
    command: list[str | Path] = [PENSTOCK, "doctor", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    command += ["--store", f"s3://{bucket}/p", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    remedies = [line.strip() for line in done.stdout.splitlines() if "->" in line]
    assert [re.findall(r"s3:\w+", remedy) for remedy in remedies] == [["s3:ListBucket"], ["s3:DeleteObject"]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch"),
        ({"AWS_ACCESS_KEY_ID": ""}, "AWS_ACCESS_KEY_ID is not set"),
        ({"AWS_ENDPOINT_URL": "https://{host}"}, "does not speak TLS"),
    ],
)
def test_an_agent_ends_at_once_on_what_cannot_pass_by_itself(
    minio: Minio, tmp_path: Path, change: dict[str, str], words: str
) -> None:
    bucket = minio.make_bucket(f"mistakes-{len(os.listdir(minio.data))}")
    host = minio.endpoint.removeprefix("http://")
    env = {**os.environ, **minio.settings, **{name: text.format(host=host) for name, text in change.items()}}
    command: list[str | Path] = [
        PENSTOCK,
        "run",
        "--listen",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--data-dir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, "--store", f"s3://{bucket}"], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "<Error>" not in done.stderr
    assert "Traceback" not in done.stderr


def test_an_agent_that_may_not_delete_does_not_start(minio: Minio, penstock: PenstockFactory, tmp_path: Path) -> None:
    bucket = minio.make_bucket("mistakes-delete")
    keys = limited_keys(minio, bucket, ["s3:PutObject", "s3:GetObject", "s3:ListBucket"])
    command: list[str | Path] = [
        PENSTOCK,
        "run",
        "--listen",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--data-dir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, "--store", f"s3://{bucket}"],
        env={**os.environ, **minio.settings, **keys},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "s3:DeleteObject" in done.stderr


def test_agents_that_start_while_the_store_is_away_come_up_with_it(clusters: ClusterFactory, tmp_path: Path) -> None:
    late = MinioProcess(tmp_path / "late-minio")
    cluster = clusters(store_env=late.server.settings)
    late.server.make_bucket(cluster.store.removeprefix("s3://").partition("/")[0])
    agents = [cluster.start(name, is_waited_for=False) for name in ("a", "b")]
    for agent in agents:
        agent.process.wait_until(lambda process=agent.process: "no connection" in process.stderr, "its warning")  # type: ignore[misc]
    with late.start() as process:
        late.wait(process)
        for agent in agents:
            agent.process.wait_until(lambda process=agent.process: "ready kafka=" in process.stdout, "ready")  # type: ignore[misc]
        for agent in agents:
            assert agent.process.stop() == 0


async def test_a_request_ends_when_its_time_is_over() -> None:
    import socket

    with socket.create_server(("127.0.0.1", free_port())) as silent:
        env = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ALLOW_HTTP": "1",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
        }
        settings = S3Settings.from_environment("s3://silent", env, request_timeout_s=0.2)
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            await S3Store(settings).put("a", [b"x"])


def test_an_agent_puts_slow_objects_twice_where_that_is_asked_for(minio: Minio, penstock: PenstockFactory) -> None:
    bucket = minio.make_bucket("hedged")
    broker = penstock(
        store=f"s3://{bucket}/p",
        env=minio.settings,
        options={"store-hedge-after-ms": "1", "store-timeout-s": "5", "flush-interval-ms": "0"},
    )
    for command in (["produce", "t", "--value", "x" * 100_000], ["consume", "t", "--max", "1"]):
        done = subprocess.run(
            [PENSTOCK, *command, "--server", broker.http], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout == "x" * 100_000 + "\n"
    samples = scrape(broker.http)
    objects = total(samples, "penstock_intake_objects_total") + len(["cluster.json", "checks/access"])
    assert total(samples, STORE_REQUESTS, "put") > objects
