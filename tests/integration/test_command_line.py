"""The commands against a running broker, and against its folder when it has stopped."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from storage.embedded.local_store import PACKS_FOLDER
from tests.support.cluster.shared_agents import SharedBroker
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.services.local_services import PENSTOCK, Minio, PenstockFactory

SECONDS_MAX = 60


def run(*arguments: str | Path, server: str, stdin: str = "") -> str:
    done = subprocess.run(
        [PENSTOCK, *arguments],
        env={"PENSTOCK_SERVER": server, "PATH": ""},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_topic_from_its_creation_to_its_archive_and_its_end(penstock: PenstockFactory) -> None:
    broker = penstock()

    def ask(*arguments: str | Path, stdin: str = "") -> str:
        return run(*arguments, server=broker.http, stdin=stdin)

    ask("topics", "create", "orders", "--partitions", "3", "--config", "compression.type=producer")
    ask("produce", "orders", "--key-separator", "=", "--header", "from=test", stdin="a=1\nb=ü\nc=\n")
    assert sorted(ask("consume", "orders", "--keys").splitlines()) == ["a\t1", "b\tü", "c\t"]
    assert json.loads(ask("topics", "list", "--json"))[0]["records"] == 3
    assert ["compression.type", "producer", "DYNAMIC_TOPIC"] in [
        line.split() for line in ask("topics", "describe", "orders").splitlines()
    ]
    before = sorted(ask("consume", "orders", "--json").splitlines())
    (done,) = json.loads(ask("archive", "orders", "--wait", "--json"))["passes"]
    assert (done["topic"], done["records"]) == ("orders", 3)
    assert sorted(ask("consume", "orders", "--json").splitlines()) == before
    assert json.loads(before[0])["headers"] == [["from", "test"]]
    assert "parquet" in ask("inspect", "objects")
    assert "released" in ask("inspect", "objects")
    assert "released" not in ask("inspect", "objects", "--limit", "0")
    assert json.loads(ask("inspect", "object", done["objects"][0], "--json"))["rows"] == 3
    assert "ReplaceChunks" in ask("inspect", "ledger")
    assert ask("consume", "orders", "--from", "2099-01-01") == ""
    ask("topics", "delete", "orders", "--yes")
    assert json.loads(ask("topics", "list", "--json")) == []


def test_a_topics_configs_are_altered_and_shown_with_their_source(penstock: PenstockFactory) -> None:
    server = penstock(settings={"log.retention.hours": "2"}).http

    def configs(*arguments: str) -> dict[str, tuple[str, str]]:
        shown = run("topics", "describe", "orders", *arguments, server=server).partition("partition  log start")[0]
        lines = [line.split() for line in shown.partition("config ")[2].splitlines()[1:]]
        return {name: ("".join(value), source) for name, *value, source in lines}  # a value may be empty

    run("topics", "create", "orders", "--config", "penstock.table.columns=value", server=server)
    run("topics", "alter", "orders", "--config", "retention.ms=5", "--config", "max.message.bytes=9000", server=server)
    columns = ("value", "DYNAMIC_TOPIC")
    assert configs() == {
        "max.message.bytes": ("9000", "DYNAMIC_TOPIC"),
        "retention.ms": ("5", "DYNAMIC_TOPIC"),
        "penstock.table.columns": columns,
    }
    back = ("--delete-config", "retention.ms", "--delete-config", "max.message.bytes")
    run("topics", "alter", "orders", *back, server=server)
    assert configs() == {"retention.ms": ("7200000", "STATIC_BROKER"), "penstock.table.columns": columns}
    assert configs("--all")["segment.ms"] == ("604800000", "DEFAULT")

    def rejection(*arguments: str) -> str:
        done = pipe("topics", "alter", *arguments, server=server)
        assert done.returncode == 1
        return done.stderr.decode()

    message = "penstock: Unknown topic config name: {}; did you mean {}? (INVALID_CONFIG)\n"
    mistyped = rejection("orders", "--config", "retention.ms=7", "--config", "penstock.table.column=key")
    assert mistyped == message.format("penstock.table.column", "penstock.table.columns")
    assert rejection("orders", "--config", "retention.mz=7") == message.format("retention.mz", "retention.ms")
    assert "there is no topic 'order'; list topics" in rejection("order", "--config", "retention.ms=7")
    assert configs()["retention.ms"] == ("7200000", "STATIC_BROKER")


def pipe(
    *arguments: str, server: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [PENSTOCK, *arguments],
        env={"PENSTOCK_SERVER": server, "PATH": "", **(env or {})},
        input=stdin,
        capture_output=True,
        check=False,
        timeout=SECONDS_MAX,
    )


def test_records_are_bytes_whatever_the_locale(shared_broker: SharedBroker) -> None:
    server = shared_broker().http
    locale = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    lines = b"\xff\xfe\x00\n\xc3\xbc\n"
    done = pipe("produce", "bytes", "--key", "ö", "--header", "ä=ü", server=server, stdin=lines, env=locale)
    assert (done.returncode, done.stderr) == (0, b"2 records acknowledged\n")
    assert pipe("consume", "bytes", server=server, env=locale).stdout == lines
    assert pipe("consume", "bytes", "--keys", server=server, env=locale).stdout.startswith(b"\xc3\xb6\t\xff\xfe\x00\n")
    shown = [
        json.loads(line) for line in pipe("consume", "bytes", "--json", server=server, env=locale).stdout.splitlines()
    ]
    assert [record["value"] for record in shown] == [{"base64": "//4A"}, "ü"]
    assert (shown[0]["key"], shown[0]["headers"]) == ("ö", [["ä", "ü"]])


def test_a_line_that_is_wrong_is_counted_and_so_is_what_was_acknowledged(shared_broker: SharedBroker) -> None:
    server = shared_broker().http
    stdin = b"".join(b"k%d\tv\n" % number for number in range(1_200)) + b"no tab\nk\tv\n"
    done = pipe("produce", "tabs", "--key-separator", r"\t", server=server, stdin=stdin)
    assert done.returncode == 1
    reason = b"'no tab' does not have the separator '\\t'"
    assert done.stderr == b"penstock: line 1201: " + reason + b"; the 1200 records before it were acknowledged\n"
    assert pipe("consume", "tabs", server=server).stdout == b"v\n" * 1_200


def test_long_lines_are_sent_few_at_a_time(shared_broker: SharedBroker) -> None:
    server = shared_broker().http
    stdin = (b"x" * 100_000 + b"\n") * 30 + b"y" * 1_000_000 + b"\n"
    assert pipe("produce", "long", server=server, stdin=stdin).stderr == b"31 records acknowledged\n"
    assert pipe("consume", "long", server=server).stdout == stdin


def test_a_null_key_is_told_from_an_empty_one(shared_broker: SharedBroker) -> None:
    server = shared_broker().http
    assert pipe("produce", "null-key", "--value", "", server=server).stderr == b"1 record acknowledged\n"
    assert pipe("consume", "null-key", "--keys", server=server).stdout == b"null\t\n"


def test_an_offset_that_the_log_has_not_is_answered_with_those_that_it_has(shared_broker: SharedBroker) -> None:
    server = shared_broker().http
    assert pipe("produce", "three", server=server, stdin=b"a\nb\nc\n").returncode == 0
    assert pipe("consume", "three", "--from", "3", server=server).stdout == b""
    for options in ([], ["--follow"]):
        done = pipe("consume", "three", "--from", "4", *options, server=server)
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.startswith(
            b"penstock: offset 4 is out of range: three-0 begins at 0 and ends at 3; --from takes"
        )


def test_the_wrong_kind_of_port_is_named(shared_broker: SharedBroker) -> None:
    broker = shared_broker()
    kafka_for_http = pipe("topics", "list", server=broker.bootstrap)
    assert kafka_for_http.returncode == 1
    assert b"If it is the Kafka port: --server takes an agent's HTTP address" in kafka_for_http.stderr
    http_for_kafka = pipe("consume", "t", "--follow", "--bootstrap", broker.http, server=broker.http)
    assert http_for_kafka.returncode == 2
    assert f"{broker.http} speaks HTTP: --bootstrap takes the address of a Kafka".encode() in http_for_kafka.stderr


def test_the_folder_of_a_broker_that_has_stopped_can_be_read(shared_broker: SharedBroker) -> None:
    broker = shared_broker()
    run("produce", "inspected", "--value", "one", server=broker.http)
    # The ledger's file is copied, so a broker that still runs is not disturbed either.
    shown = json.loads(run("inspect", "chunks", "inspected", "--data-dir", broker.data, "--json", server="-"))
    (chunk,) = shown["chunks"]
    assert (chunk["offset_first"], chunk["offset_end"]) == (0, 1)
    shown = json.loads(run("inspect", "object", chunk["object"], "--data-dir", broker.data, "--json", server="-"))
    assert shown["chunks"][0]["records"] == 1


def test_a_port_that_is_taken_is_explained(shared_broker: SharedBroker, tmp_path: Path) -> None:
    broker = shared_broker()
    command = [str(PENSTOCK), "run", "--listen", broker.bootstrap, "--http", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"penstock: --listen {broker.bootstrap}: address already in use; ")
    assert "choose another port" in done.stderr
    assert "Traceback" not in done.stderr


def doctor(
    *arguments: str,
    env: dict[str, str],
    listen: str = "127.0.0.1:0",
    http: str = "127.0.0.1:0",
    seconds_max: float = SECONDS_MAX,
) -> tuple[int, str]:
    command = [str(PENSTOCK), "doctor", "--listen", listen, "--http", http, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=seconds_max)
    return done.returncode, done.stdout


def test_a_topic_is_told_to_be_there_or_not_before_anything_is_asked(shared_broker: SharedBroker) -> None:
    server = shared_broker().http
    assert pipe("topics", "create", "shop", server=server).returncode == 0
    again = pipe("topics", "create", "shop", server=server)
    assert again.stderr == b"penstock: Topic 'shop' already exists (TOPIC_ALREADY_EXISTS)\n"
    missing = pipe("topics", "delete", "nope", server=server)
    assert missing.stderr == b"penstock: there is no topic 'nope'; list topics with penstock topics list\n"


def test_who_follows_outlives_the_agent(penstock: PenstockFactory, tmp_path: Path) -> None:
    broker = penstock()
    assert pipe("produce", "t", "--value", "one", server=broker.http).returncode == 0
    command: list[str | Path] = [PENSTOCK, "consume", "t", "--follow", "--bootstrap", broker.bootstrap]
    with Process(command, tmp_path, name="follow") as follower:
        assert follower.read_line() == "one"
        assert broker.process.stop() == 0
        follower.wait_until(lambda: "trying again" in follower.stderr, "its first line on stderr")
        again = penstock(data=broker.data, listen=broker.bootstrap)
        assert pipe("produce", "t", "--value", "two", server=again.http).returncode == 0
        assert follower.read_line() == "two"
        assert follower.stderr.splitlines()[1:] == ["penstock: connected again, going on at the next offset"]


def test_the_doctor_refuses_what_an_agent_would(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, text = doctor("--data-dir", str(tmp_path / "file"), env={})
    assert (code, text.count("FAILED")) == (1, 1)
    assert f"FAILED  data dir     {tmp_path}/file: it is a file" in text
    code, text = doctor("--ledger", "etcd://127.0.0.1:1/x", "--store", f"file://{tmp_path}/store", env={})
    assert (code, text.count("FAILED")) == (1, 1)
    assert "FAILED  ledger       etcd at 127.0.0.1:1 cannot be reached (" in text
    assert "-> repair it: until then an agent waits, and logs this\n" in text
    same = f"127.0.0.1:{free_port()}"
    code, text = doctor("--listen", f"B://{same}", "--http", same, "--data-dir", str(tmp_path), env={})
    assert (code, text.count("FAILED  port")) == (1, 1)


def test_the_doctor_is_content_with_the_ports_of_the_agent_that_it_is_asked_about(
    shared_broker: SharedBroker, tmp_path: Path
) -> None:
    broker = shared_broker()
    listen, http = broker.bootstrap, broker.http
    code, text = doctor("--data-dir", str(broker.data), env={}, listen=listen, http=http)
    assert code == 0, text
    assert f"ok      port         --http {broker.http}: in use by the agent penstock, which runs with these" in text
    assert f"ok      port         --listen {broker.bootstrap}: in use by the agent penstock" in text
    for other in (["--data-dir", str(tmp_path)], ["--data-dir", str(broker.data), "--name", "other"]):
        code, text = doctor(*other, env={}, listen=listen, http=http)
        assert (code, text.count("FAILED  port")) == (1, 2)
        assert text.count(f"the agent penstock on file://{broker.data}/store uses it: give one of the two") == 2
    code, text = doctor("--data-dir", str(broker.data), env={}, listen=broker.bootstrap)
    assert (code, text.count("FAILED  port")) == (1, 1)
    assert "a process uses it" in text


def test_a_folder_is_audited_once_its_broker_has_stopped(penstock: PenstockFactory, tmp_path: Path) -> None:
    broker = penstock(has_journal=False)
    run("produce", "orders", "--value", "one", server=broker.http)
    running = pipe("audit", "--data-dir", str(broker.data), server="-")
    assert running.returncode == 1
    assert f"a running broker has {broker.data} open: stop it".encode() in running.stderr
    assert json.loads(run("audit", "--json", server=broker.http))["disagreements_count"] == 0
    assert broker.process.stop() == 0
    audit = json.loads(run("audit", "--data-dir", broker.data, "--json", server="-"))
    assert (audit["disagreements_count"], audit["referenced"]) == (0, 1)
    nothing = tmp_path / "nothing"
    assert pipe("audit", "--data-dir", str(nothing), server="-").returncode == 1
    assert not nothing.exists()
    for packed in (broker.data / "store" / PACKS_FOLDER).iterdir():
        packed.unlink()
    lost = pipe("audit", "--data-dir", str(broker.data), server="-")
    assert lost.returncode == 1
    assert b"missing" in lost.stdout


def test_the_doctor_tries_disk_and_bucket(minio: Minio, tmp_path: Path) -> None:
    bucket = minio.make_bucket("doctor")
    store = ["--store", f"s3://{bucket}/p", "--data-dir", str(tmp_path)]
    code, text = doctor(*store, env=dict(minio.settings))
    assert code == 0, text
    assert [line.split()[1] for line in text.splitlines() if line.startswith("ok")][-3:] == [
        "bucket",
        "clock",
        "identity",
    ]


@pytest.mark.parametrize("change", ["bucket", "key", "http"])
def test_the_doctor_says_what_is_wrong_with_a_bucket(minio: Minio, tmp_path: Path, change: str) -> None:
    env = dict(minio.settings)
    bucket = "there-is-none" if change == "bucket" else minio.make_bucket(f"sick-{change}")
    if change == "key":
        env["AWS_SECRET_ACCESS_KEY"] = "wrong"
    if change == "http":
        del env["AWS_ALLOW_HTTP"]
    code, text = doctor("--store", f"s3://{bucket}", "--data-dir", str(tmp_path), env=env)
    assert code == 1
    assert text.count("FAILED  ") == text.count("FAILED  bucket") == 1
    assert " -> " in text


def test_the_doctor_does_not_wait_long_for_a_store_that_is_not_there(tmp_path: Path) -> None:
    env = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ALLOW_HTTP": "true",
    }
    code, text = doctor("--store", "s3://bucket", "--data-dir", str(tmp_path), env=env, seconds_max=20)
    assert code == 1
    assert "whether this machine can reach it" in text


def test_a_ledger_is_not_started_on_a_bucket_that_lacks_its_objects(penstock: PenstockFactory, tmp_path: Path) -> None:
    broker = penstock(has_journal=False)
    run("produce", "orders", "--value", "one", server=broker.http)
    assert broker.process.stop() == 0
    other = tmp_path / "other"
    command = [str(PENSTOCK), "run", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data-dir", str(broker.data)]
    done = subprocess.run(
        [*command, "--store", f"file://{other}"], capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "are in another bucket" in done.stderr
    assert [path for path in other.rglob("*") if path.is_file()] == []
    again = penstock(data=broker.data)
    assert run("consume", "orders", server=again.http) == "one\n"
