"""What the settings come to."""

import subprocess
import sys
from pathlib import Path

import pytest

from agent.config import settings as settings_module
from agent.config.addresses import HostPort, ListenerAddress
from agent.config.settings import CliCommand, InvalidSettings, Settings, load_settings
from protocol.limits import MIB

CLUSTER = {"ledger": "sqlite:///srv/ledger.sqlite", "store": "s3://lake/kafka"}


def run(**given: object) -> Settings:
    return load_settings(
        CliCommand.RUN, {name.replace("_", "-"): value for name, value in given.items()}, environment={}
    )


def agent(**given: object) -> Settings:
    values = {**CLUSTER, **{name.replace("_", "-"): value for name, value in given.items()}}
    return load_settings(CliCommand.AGENT, values, environment={})


def test_penstock_run_needs_nothing() -> None:
    settings = run()
    assert settings.listeners == (ListenerAddress(name="PLAINTEXT", host="127.0.0.1", port=9092),)
    assert settings.advertised == settings.listeners
    assert settings.http == HostPort(host="127.0.0.1", port=9644)
    assert settings.data_dir == Path.cwd() / "penstock-data"
    assert settings.ledger_url == f"journal://{Path.cwd()}/penstock-data/journal"
    assert settings.store_url == f"file://{Path.cwd()}/penstock-data/store"
    assert settings.is_durable
    assert settings.flush_interval_ms == 5


def test_an_agent_on_s3_gathers_longer() -> None:
    assert agent().flush_interval_ms == 250
    assert agent(store="memory:").flush_interval_ms == 5
    assert agent(flush_interval_ms="0").flush_interval_ms == 0


def test_the_read_cache_follows_the_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_module, "memory_limit", lambda: 4096 * MIB)
    assert run().read_cache_bytes == 1024 * MIB
    assert run(read_cache_bytes="auto").read_cache_bytes == 1024 * MIB
    assert run(read_cache_bytes="64MiB").read_cache_bytes == 64 * MIB
    assert agent(ledger="etcd://127.0.0.1:1/x", processes="4").read_cache_bytes == 256 * MIB
    with pytest.raises(InvalidSettings, match="'automatic' is not a number of bytes"):
        run(read_cache_bytes="automatic")


def test_compiled_code_is_kept_where_it_is_told() -> None:
    assert run().cache_dir is None
    assert run(cache_dir="kept").cache_dir == Path.cwd() / "kept"


def test_an_agent_must_be_told_its_cluster() -> None:
    with pytest.raises(InvalidSettings, match="needs --store"):
        load_settings(CliCommand.AGENT, {"ledger": "memory:"}, environment={})


def test_penstock_run_has_its_own_ledger() -> None:
    with pytest.raises(InvalidSettings, match="ledger is an option of penstock agent"):
        load_settings(CliCommand.RUN, {}, environment={"PENSTOCK_LEDGER": "memory:"})


def test_an_agent_may_take_over_its_name() -> None:
    assert not agent().is_taking_over_name
    assert agent(take_over_name=True).is_taking_over_name
    with pytest.raises(InvalidSettings, match="take-over-name is an option of penstock agent"):
        run(take_over_name=True)


def test_penstock_run_can_have_its_bucket_elsewhere() -> None:
    settings = run(store="s3://lake/kafka")
    assert settings.store_url == "s3://lake/kafka"
    assert settings.ledger_url == f"sqlite://{Path.cwd()}/penstock-data/ledger.sqlite"
    assert settings.flush_interval_ms == 250


def test_the_ledger_is_in_a_journal_beside_its_own_bucket_alone(tmp_path: Path) -> None:
    data, elsewhere, link = tmp_path / "data", tmp_path / "elsewhere", tmp_path / "link"
    data.mkdir()
    link.symlink_to(data)
    in_journal, in_sqlite = f"journal://{data}/journal", f"sqlite://{data}/ledger.sqlite"
    for store in (f"{data}/store", f"{data}/store/", f"{data}/./store", f"{link}/store"):
        assert run(data_dir=str(data), store=f"file://{store}").ledger_url == in_journal
    for store in (f"file://{elsewhere}", f"file://{data}/another", "memory:"):
        assert run(data_dir=str(data), store=store).ledger_url == in_sqlite
    assert run(data_dir=str(link)).ledger_url == f"journal://{link}/journal"
    (data / "store").symlink_to(elsewhere)  # other readers look for the journal beside what the link names
    assert run(data_dir=str(data)).ledger_url == in_sqlite


@pytest.mark.parametrize("option", ["listen", "http"])
def test_an_address_that_others_can_reach_must_be_wanted(option: str) -> None:
    with pytest.raises(InvalidSettings, match="--insecure"):
        run(**{option: ["10.0.0.1:9092"] if option == "listen" else "10.0.0.1:9092"})


def test_insecure_allows_every_interface_with_an_advertised_address() -> None:
    settings = run(listen=["0.0.0.0:9092"], advertise=["broker.example:9092"], insecure=True)
    assert settings.advertised == (ListenerAddress(name="PLAINTEXT", host="broker.example", port=9092),)


def test_clients_cannot_be_sent_to_every_interface() -> None:
    with pytest.raises(InvalidSettings, match="--advertise PLAINTEXT://HOST:9092"):
        run(listen=["0.0.0.0:9092"], insecure=True)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({}, "http://127.0.0.1:9644"),
        ({"http": "[::1]:1"}, "http://[::1]:1"),
        ({"http": "0.0.0.0:1", "insecure": True}, "None"),
        ({"http": "0.0.0.0:1", "insecure": True, "advertise-http": "{name}.example:9"}, "http://{name}.example:9"),
        ({"advertise-http": "https://proxy.example:443"}, "https://proxy.example:443"),
        ({"advertise-http": "{dashed:10.77.1.2}.kafka.svc:9644"}, "http://10-77-1-2.kafka.svc:9644"),
    ],
)
def test_the_http_port_has_an_advertised_address_where_one_leads_there(values: dict[str, object], shown: str) -> None:
    settings = load_settings(CliCommand.RUN, values, environment={})
    assert str(settings.advertised_http) == shown


@pytest.mark.parametrize("is_held", [None, True, False])
def test_a_hold_of_the_rules_begins_ends_or_stays(is_held: bool | None) -> None:
    values = {} if is_held is None else {"hold-rules": is_held}
    assert load_settings(CliCommand.RUN, values, environment={}).is_rules_held is is_held


def test_nobody_can_be_sent_to_the_http_port_of_every_interface() -> None:
    with pytest.raises(InvalidSettings, match=r"--advertise-http 0\.0\.0\.0:1"):
        load_settings(CliCommand.RUN, {"advertise-http": "0.0.0.0:1"}, environment={})


def test_each_listener_has_its_own_advertised_address() -> None:
    settings = run(listen=["IN://127.0.0.1:1", "OUT://127.0.0.1:2"], advertise=["OUT://broker.example:443"])
    assert [str(shown) for shown in settings.advertised] == ["IN://127.0.0.1:1", "OUT://broker.example:443"]


def test_one_listener_needs_no_name_in_its_advertised_address() -> None:
    settings = run(listen=["IN://127.0.0.1:1"], advertise=["localhost:5"])
    assert str(settings.advertised[0]) == "IN://localhost:5"


def test_two_listeners_need_two_names() -> None:
    with pytest.raises(InvalidSettings, match="two listeners have the name PLAINTEXT"):
        run(listen=["127.0.0.1:1", "127.0.0.1:2"])


@pytest.mark.parametrize(
    ("address", "label"), [("10.77.1.2", "10-77-1-2"), ("fd00::a:1", "fd00--a-1"), ("fd00::", "fd00--0")]
)
def test_a_dashed_address_in_an_advertised_host_is_a_label_of_dns(address: str, label: str) -> None:
    settings = run(advertise=[f"{{dashed:{address}}}.agents.kafka.svc:9092"])
    assert settings.advertised[0].host == f"{label}.agents.kafka.svc"


def test_only_an_ip_address_is_dashed() -> None:
    with pytest.raises(InvalidSettings, match=r"\{dashed:broker\}: 'broker' is no IP address"):
        run(advertise=["{dashed:broker}.kafka.svc:9092"])


def test_an_empty_zone_is_none() -> None:
    settings = load_settings(CliCommand.RUN, {}, environment={"PENSTOCK_ZONE": ""})
    assert settings.zone is None
    with pytest.raises(InvalidSettings, match="PENSTOCK_NAME: '' is not a text"):
        load_settings(CliCommand.RUN, {}, environment={"PENSTOCK_NAME": ""})


def test_an_advertised_address_names_a_listener() -> None:
    with pytest.raises(InvalidSettings, match=r"no listener has the name OUTT; .*did you mean OUT"):
        run(listen=["IN://127.0.0.1:1", "OUT://127.0.0.1:2"], advertise=["OUTT://h:443"])


def test_a_bad_address_is_a_bad_setting() -> None:
    with pytest.raises(InvalidSettings, match="HOST:PORT"):
        run(listen=["localhost"])


def test_broker_configs_are_kafkas() -> None:
    assert run(set=["num.partitions=3"]).broker_configs == {"num.partitions": "3"}


def test_an_unknown_broker_config_names_the_nearest() -> None:
    with pytest.raises(InvalidSettings, match=r"did you mean num\.partitions"):
        run(set=["num.partition=3"])


def test_a_broker_config_takes_only_its_own_values() -> None:
    with pytest.raises(InvalidSettings, match=r"--set num\.partitions=many"):
        run(set=["num.partitions=many"])


def test_reading_settings_imports_neither_numpy_nor_pydantic() -> None:
    program = (
        "import sys, agent.config.settings; sys.exit(bool({'numpy', 'pydantic', 'kio', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[4], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["a#b", "a?b"])
def test_a_data_folder_that_tables_could_not_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidSettings, match="the path must not have"):
        load_settings(CliCommand.RUN, {"data-dir": f"/srv/{name}"}, environment={})


class TestRelay:
    LISTEN = ("127.0.0.1:9092", "RELAY://127.0.0.1:9095")

    def test_agents_have_it_where_they_are_told_to_and_clients_get_it_last(self) -> None:
        settings = agent(listen=[self.LISTEN[1], self.LISTEN[0]])
        assert settings.has_relay
        assert [listener.name for listener in settings.listeners] == ["PLAINTEXT", "RELAY"]
        assert [listener.name for listener in settings.advertised] == ["PLAINTEXT", "RELAY"]
        assert not agent().has_relay

    def test_a_broker_that_is_alone_has_none(self) -> None:
        with pytest.raises(InvalidSettings, match="RELAY is a listener of penstock agent"):
            run(listen=self.LISTEN)

    def test_its_certificates_do_not_turn_the_authorizer_on(self, tmp_path: Path) -> None:
        configs = [
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,RELAY:SSL",
            f"ssl.keystore.location={tmp_path}/agent.pem",
            f"ssl.truststore.location={tmp_path}/ca.pem",
            "listener.name.relay.ssl.client.auth=required",
        ]
        assert not agent(listen=self.LISTEN, set=configs).authorizer.is_enabled

    def test_beyond_this_machine_it_encrypts_or_says_that_it_does_not(self) -> None:
        listen = (self.LISTEN[0], "RELAY://10.0.0.1:9095")
        with pytest.raises(InvalidSettings, match="does not encrypt"):
            agent(listen=listen)
        assert agent(listen=listen, insecure=True).has_relay
