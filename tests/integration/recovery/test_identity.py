"""Ledger and bucket that do not belong together, with real agents, etcd and MinIO (safety rule S9): a recovery under a
mistyped name, two buckets for one ledger, and what `penstock doctor` says of both.
"""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
from confluent_kafka import Producer

from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.cluster.recovery import consume, exit_of, keys, offline, produce, recovered
from tests.support.services.etcd_tls import PASSWORD, USER, Certificates, running
from tests.support.services.etcd_users import require_password
from tests.support.services.local_services import PENSTOCK, READY, Minio, PenstockFactory

SECONDS_MAX = 60.0
OPTIONS = {"archive-interval-s": "3600", "flush-interval-ms": "0"}


def doctor(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    return offline(cluster, "doctor", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *options)


def identity_lines(told: str) -> list[str]:
    return [line for line in told.splitlines() if line.split()[1:2] == ["identity"]]


def another_name(cluster: Cluster) -> Cluster:
    """The same bucket, and a ledger of a name that nobody meant."""
    return replace(cluster, ledger=cluster.ledger + "-mistyped", agents={})


@contextmanager
def producing(agent: ClusterAgent, topic: str) -> Iterator[list[bytes]]:
    """A record now and then, in the background; those that were acknowledged."""
    acknowledged: list[bytes] = []
    is_over = threading.Event()
    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 0, "enable.idempotence": True})

    def work() -> None:
        while not is_over.wait(0.2):
            value = b"%d" % len(acknowledged)
            producer.produce(topic, value, partition=0)
            assert producer.flush(SECONDS_MAX) == 0
            acknowledged.append(value)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        thread.join()


@pytest.mark.slow
def test_s9_a_recovery_under_a_mistyped_name_is_refused_while_agents_write_and_ends_them_where_it_is_forced(
    clusters: ClusterFactory, minio: Minio
) -> None:
    cluster = clusters()
    agent = cluster.start("a", options=OPTIONS)
    mistyped = another_name(cluster)
    before = keys(minio, cluster)
    with producing(agent, "kept") as acknowledged:
        for options in ((), ("--dry-run",)):
            refused = offline(mistyped, "recover", *options)
            assert refused.returncode == 2, refused.stderr
            assert "/CLUSTER, may be mistyped" in refused.stderr
    assert consume(agent, "kept", len(acknowledged)) == acknowledged
    assert before < keys(minio, cluster)

    before = keys(minio, cluster)
    forced = offline(mistyped, "recover", "--force", "--store-timeout-s", "1", "--json")
    assert forced.returncode == 0, forced.stderr
    assert "recovered under another ledger's name" in exit_of(agent)
    assert before <= keys(minio, cluster)
    (topic,) = json.loads(forced.stdout)["topics"]
    again = mistyped.start("a", options=OPTIONS)
    assert sorted(consume(again, topic["topic"], len(acknowledged)), key=int) == acknowledged
    late = cluster.start("b", options=OPTIONS, is_waited_for=False)
    assert "the bucket belongs to cluster" in exit_of(late)

    assert again.process.stop() == 0
    recovered(cluster)  # once the lease of the agent that ended has run out
    back = cluster.start("a", options=OPTIONS)
    assert sorted(consume(back, topic["topic"], len(acknowledged)), key=int) == acknowledged


@pytest.mark.parametrize(
    "is_at_once", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["at once", "one after the other"]
)
def test_s9_of_two_agents_with_two_new_buckets_on_one_new_ledger_one_serves(
    clusters: ClusterFactory, minio: Minio, *, is_at_once: bool
) -> None:
    first = clusters()
    bucket = minio.make_bucket(f"{first.store.removeprefix('s3://').partition('/')[0]}-second")
    second = replace(first, store=f"s3://{bucket}/data", folder=first.folder / "second", agents={})
    agents = [first.start("a", options=OPTIONS, is_waited_for=not is_at_once)]
    agents.append(second.start("b", options=OPTIONS, is_waited_for=False))
    agents[0].process.wait_until(lambda: not all(agent.process.is_running for agent in agents), "the end of one")
    (refused,) = [agent for agent in agents if not agent.process.is_running]
    (serving,) = [agent for agent in agents if agent.process.is_running]
    assert "same --store" in exit_of(refused)
    serving.process.wait_until(lambda: READY.search(serving.process.stdout) is not None, "the other one")


@pytest.mark.slow  # the next test asks the doctor, too
def test_the_doctor_says_whether_ledger_and_bucket_name_each_other(clusters: ClusterFactory) -> None:
    cluster = clusters()
    new = doctor(cluster)
    assert new.returncode == 0, new.stdout
    assert "are new" in identity_lines(new.stdout)[0]
    agent = cluster.start("a", options=OPTIONS)
    produce(agent, "t", [b"one"])
    told = doctor(cluster)
    assert told.returncode == 0, told.stdout
    names, progress = identity_lines(told.stdout)
    assert "ledger and bucket name each other: cluster" in names
    assert "the ledger is at" in progress
    wrong = doctor(another_name(cluster))
    assert wrong.returncode == 1
    assert "FAILED  identity     there is no ledger" in wrong.stdout
    assert "may be mistyped" in wrong.stdout
    other = replace(clusters(), ledger=cluster.ledger)
    elsewhere = doctor(other)
    assert elsewhere.returncode == 1
    assert "are in another bucket" in elsewhere.stdout


def test_the_doctor_finds_a_ledger_that_is_an_older_copy_or_gone(penstock: PenstockFactory, tmp_path: Path) -> None:
    broker = penstock(has_journal=False)
    assert broker.process.stop() == 0
    older = tmp_path / "older.sqlite"
    shutil.copy2(broker.data / "ledger.sqlite", older)
    reached = broker.data / "store" / "ledger" / "reached"
    before = set(reached.glob("*"))
    broker = penstock(data=broker.data, has_journal=False)

    def asked() -> tuple[int, str]:
        command: list[str | Path] = [PENSTOCK, "doctor", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        done = subprocess.run(
            [*command, "--data-dir", broker.data], capture_output=True, text=True, check=False, timeout=SECONDS_MAX
        )
        return done.returncode, "\n".join(done.stdout.splitlines()[-3:])

    broker.process.wait_until(lambda: bool(set(reached.glob("*")) - before), "a mark of how far the ledger has come")
    code, text = asked()  # beside the broker that runs
    assert code == 0, text
    assert "name each other" in text
    assert broker.process.stop() == 0
    for path in broker.data.glob("ledger.sqlite*"):
        path.unlink()
    shutil.copy2(older, broker.data / "ledger.sqlite")
    code, text = asked()
    assert code == 1
    assert "it is an older copy of the cluster's ledger" in text
    assert "penstock recover" in text
    (broker.data / "ledger.sqlite").unlink()
    code, text = asked()
    assert code == 1
    assert "there is no ledger" in text


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates") / "pem")


@pytest.mark.slow
async def test_recover_audit_and_doctor_get_into_an_etcd_that_asks_for_tls_and_a_password(
    certificates: Certificates, minio: Minio, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    access = {"ledger-ca": str(certificates.ca), "ledger-user": USER, "ledger-password-file": str(password)}
    flags = [part for name, value in access.items() for part in (f"--{name}", value)]
    with ExitStack() as stack:
        etcd = stack.enter_context(running(tmp_path / "etcd", certificates.server))
        cluster = ClusterFactory(etcd=etcd, minio=minio, folder=tmp_path, stack=stack)()
        name = cluster.ledger.rpartition("/")[2]
        credentials = grpc.ssl_channel_credentials(certificates.ca.read_bytes())
        async with grpc.aio.secure_channel(etcd.endpoints[0], credentials) as channel:
            await require_password(channel, users={USER: (PASSWORD, b"/penstock/%s/" % name.encode())})
        agent = cluster.start("a", options={**OPTIONS, **access})
        produce(agent, "kept", [b"0", b"1"])
        audited = offline(cluster, "audit", *flags)
        assert audited.returncode == 0, audited.stderr
        examined = doctor(cluster, *flags)
        assert examined.returncode == 0, examined.stdout
        assert "name each other" in examined.stdout
        assert agent.process.stop() == 0
        done = offline(cluster, "recover", "--force", "--store-timeout-s", "1", "--json", *flags)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["is_carried_out"]
        again = cluster.start("a", options={**OPTIONS, **access})
        assert consume(again, "kept", 2) == [b"0", b"1"]
