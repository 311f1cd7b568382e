"""What greets the operator."""

import dataclasses
import logging
import re
from pathlib import Path

import pytest

from agent.cli.serving.startup_report import durability_text, ready_line, startup_fields, startup_report
from agent.config.addresses import HostPort, ListenerAddress
from agent.config.listener_security import ListenerSecurity, SecurityProtocol
from agent.config.settings import Settings
from agent.config.tls_settings import ClientAuth, TlsSettings
from agent.runtime.version import VERSION

LISTENER = ListenerAddress(name="PLAINTEXT", host="127.0.0.1", port=9092)
SETTINGS = Settings(
    listeners=(LISTENER,),
    advertised=(LISTENER,),
    http=HostPort(host="127.0.0.1", port=9644),
    ledger_url="sqlite:///d/ledger.sqlite",
    store_url="file:///d/store",
    data_dir=Path("/d"),
    name="penstock",
)


def test_the_ready_line_is_the_promised_one() -> None:
    line = ready_line(LISTENER, HostPort(host="127.0.0.1", port=9644))
    assert line == "ready kafka=127.0.0.1:9092 http=127.0.0.1:9644"


def test_the_report_has_the_ports_that_were_got_and_lines_to_paste() -> None:
    bound = ListenerAddress(name="IN", host="0.0.0.0", port=4711)
    shown = ListenerAddress(name="IN", host="broker.example", port=443)
    report = startup_report(
        SETTINGS,
        bound=[bound],
        advertised=[shown],
        http=HostPort(host="0.0.0.0", port=8),
        cluster_id="c1",
        program="my tools/penstock",
    )
    assert "IN://0.0.0.0:4711  clients connect to broker.example:443" in report
    assert "http://127.0.0.1:8" in report
    assert "kcat -b broker.example:443 -P -t greetings" in report
    assert "kafka-console-producer.sh --bootstrap-server broker.example:443 --topic greetings\n" in report
    consumer = "kafka-console-consumer.sh --bootstrap-server broker.example:443 --topic greetings"
    assert f"{consumer} --from-beginning\n" in report
    assert "'bootstrap.servers': 'broker.example:443'" in report
    assert "'my tools/penstock' consume greetings" in report
    assert "of cluster c1" in report


def test_an_ipv6_address_stands_in_brackets_and_in_quotes_where_a_shell_would_match_them() -> None:
    listener = ListenerAddress(name="PLAINTEXT", host="::1", port=9092)
    report = startup_report(
        SETTINGS,
        bound=[listener],
        advertised=[listener],
        http=HostPort(host="::1", port=9644),
        cluster_id="c1",
        program="penstock",
    )
    assert report.endswith("--server '[::1]:9644'")
    assert "http://[::1]:9644" in report
    assert report.count("'[::1]:9092'") == 5
    assert "PLAINTEXT://[::1]:9092  clients connect to [::1]:9092" in report
    assert not re.search(r"(?<!\[)::1", report)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "is on disk (fsync) and survives a loss of power"),
        ({"store_url": "s3://b"}, "is in the bucket, its ledger entry on disk (fsync)"),
        ({"ledger_url": "etcd://h:1/c"}, "is on disk (fsync)"),
        ({"is_durable": False}, "NO FSYNC"),
        ({"is_durable": False, "store_url": "s3://b"}, "NO FSYNC"),
        ({"store_url": "memory:"}, "gone when this process ends"),
        ({"ledger_url": "etcd://h:1/c", "store_url": "s3://b"}, "in the bucket and in the ledger"),
    ],
)
def test_durability_is_said_as_it_is(change: dict[str, object], words: str) -> None:
    assert words in durability_text(dataclasses.replace(SETTINGS, **change))  # type: ignore[arg-type]


def test_a_program_reads_the_same_from_the_log_with_the_ports_that_were_got() -> None:
    bound = ListenerAddress(name="IN", host="0.0.0.0", port=4711)
    shown = ListenerAddress(name="IN", host="broker.example", port=443)
    http = HostPort(host="0.0.0.0", port=8)
    fields = startup_fields(SETTINGS, bound=[bound], advertised=[shown], http=http, cluster_id="c1")
    assert fields == {
        "agent": "penstock",
        "version": VERSION,
        "cluster_id": "c1",
        "kafka": ["IN://broker.example:443"],
        "listeners": ["IN://0.0.0.0:4711"],
        "http": "http://0.0.0.0:8",
        "ledger": "sqlite:///d/ledger.sqlite",
        "store": "file:///d/store",
        "durability": durability_text(SETTINGS),
        "unencrypted": ["IN://0.0.0.0:4711", "http://0.0.0.0:8"],
        "password_file": None,
    }
    assert not fields.keys() & vars(logging.makeLogRecord({})).keys(), "they are extras of a log record"


def test_files_that_the_commands_name_and_no_agent_writes_are_explained() -> None:
    listener = ListenerAddress(name="SSL", host="127.0.0.1", port=9093)
    tls = TlsSettings(listener="SSL", client_auth=ClientAuth.REQUIRED)
    security = ListenerSecurity(protocol=SecurityProtocol.SSL, tls=tls)
    report = startup_report(
        dataclasses.replace(SETTINGS, listener_security={"SSL": security}),
        bound=[listener],
        advertised=[listener],
        http=HostPort(host="127.0.0.1", port=9644),
        cluster_id="c1",
        program="penstock",
    )
    assert "-X ssl.certificate.location=client.pem -X ssl.key.location=client.pem" in report
    assert (
        "  your files  write client.properties; ca.pem, the authority of the agent's certificate; client.pem, a "
        "client's certificate and key. client.properties has security.protocol=SSL, ssl.truststore.type=PEM, "
        "ssl.truststore.location=ca.pem, ssl.keystore.type=PEM, ssl.keystore.location=client.pem"
    ) in report
