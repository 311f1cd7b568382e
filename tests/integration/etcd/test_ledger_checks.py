"""What `penstock doctor` finds out about a ledger in etcd."""

from pathlib import Path

from aetcd.rpc import rpc_pb2

from agent.bucket.cluster_identity import claim_bucket
from agent.cli.doctor.identity_checks import check_identity
from agent.cli.doctor.ledger_checks import check_ledger
from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding
from agent.config.settings import CliCommand, load_settings
from coordinator.codec.codec import encode
from coordinator.commands.commands import Endpoint, Proposal, StartSession
from coordinator.commands.rules import RULES_FIRST, RULES_NEWEST
from coordinator.ledger.etcd.access import EtcdAccess
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.ledger import EtcdLedger
from coordinator.ledger.port import LedgerEntry
from storage.embedded.local_store import LocalStore
from tests.support.ports import free_port
from tests.support.services.etcd import Etcd
from tools import pins


async def findings(ledger: str) -> list[DoctorFinding]:
    settings = load_settings(CliCommand.AGENT, {"ledger": ledger, "store": "memory:"}, environment={})
    return [finding async for finding in check_ledger(settings)]


async def test_an_etcd_that_is_fit_and_has_no_ledger_yet(tmp_path: Path) -> None:
    with Etcd(tmp_path) as etcd:
        found = await findings(f"etcd://{etcd.endpoints[0]}/c")
        assert {finding.verdict for finding in found} == {CheckStatus.FINE}
        server, cluster, write = (finding.text for finding in found)
        assert server.startswith(f"etcd {pins.ETCD.removeprefix('v')} at {etcd.endpoints[0]}")
        assert "quota 2" in server
        assert "none yet" in cluster
        assert "a small append takes" in write
        client = EtcdClient(EtcdAccess(endpoints=etcd.endpoints))
        assert (await client.range(rpc_pb2.RangeRequest(key=b"\0", range_end=b"\0"))).kvs == []
        await client.close()


async def test_the_cluster_is_named_and_an_endpoint_that_does_not_answer_is_doubtful(etcd: Etcd) -> None:
    client = EtcdClient(EtcdAccess(endpoints=etcd.endpoints))
    ledger = await EtcdLedger.open(client, "doctors", new_cluster_id="the-cluster")
    await ledger.close()
    found = await findings(f"etcd://127.0.0.1:{free_port()},{etcd.endpoints[0]}/doctors")
    assert CheckStatus.FAILED not in {finding.verdict for finding in found}
    assert any("the-cluster, incarnation 1" in finding.text for finding in found)
    assert any("cannot be reached" in finding.text and "other endpoints" in finding.remedy for finding in found)


async def test_an_etcd_that_is_away_fails() -> None:
    (found,) = await findings(f"etcd://127.0.0.1:{free_port()}/c")
    assert found.verdict is CheckStatus.FAILED
    assert "cannot be reached" in found.text


async def test_one_that_is_nearly_full_is_doubtful(tmp_path: Path) -> None:
    with Etcd(tmp_path, options=["--quota-backend-bytes", "20480"]) as etcd:
        found = await findings(f"etcd://{etcd.endpoints[0]}/c")
        assert found[0].verdict is CheckStatus.DOUBTFUL
        assert "etcd is full" in found[0].remedy


async def test_other_ledgers_are_not_asked() -> None:
    assert await findings("memory:") == []


async def test_an_address_that_another_agent_has_needs_a_listener_relay(etcd: Etcd, tmp_path: Path) -> None:
    url = f"etcd://{etcd.endpoints[0]}/sharing"
    client = EtcdClient(EtcdAccess(endpoints=etcd.endpoints))
    ledger = await EtcdLedger.open(client, "sharing", new_cluster_id="the-cluster")
    store = LocalStore(tmp_path)
    await claim_bucket(store, ledger, new_bucket_id="bucket")
    session = await ledger.open_session("b")
    endpoints = (Endpoint(listener="PLAINTEXT", host="lb.example", port=9092),)
    command = StartSession(name="b", node_id=1, endpoints=endpoints, zone=None, rules_version=RULES_NEWEST)
    payload = encode(Proposal(time_ms=None, command=command), RULES_FIRST, session, 0)
    await ledger.append(session, [LedgerEntry(number=0, payload=payload)])

    async def finding(**values: object) -> DoctorFinding:
        options = {"ledger": url, "store": f"file://{tmp_path}", "name": "a", **values}
        settings = load_settings(CliCommand.AGENT, options, environment={})
        return [found async for found in check_identity(settings)][-1]

    shared = await finding(advertise=["lb.example:9092"])
    assert (shared.name, shared.verdict) == ("addresses", CheckStatus.DOUBTFUL)
    assert "lb.example:9092 of listener PLAINTEXT is the address of 2 agents" in shared.text
    assert "--listen RELAY://HOST:9095" in shared.remedy
    own = await finding()
    assert (own.name, own.verdict, own.remedy) == ("addresses", CheckStatus.FINE, "")
    await ledger.close()
    await store.close()
