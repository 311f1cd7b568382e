"""How an agent gets into etcd, against real ones: TLS, client certificates, users and passwords, and every mistake."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest

from coordinator.ledger.etcd.access import EtcdAccess
from coordinator.ledger.etcd.client import EtcdClient
from coordinator.ledger.etcd.ledger import EtcdLedger
from coordinator.ledger.port import LedgerUnavailable
from tests.support.ledger.etcd_retries import until_known
from tests.support.ledger.operations import START, append_singly, numbers, pointer_at, take
from tests.support.services.etcd import Etcd
from tests.support.services.etcd_tls import PASSWORD, PREFIX, USER, Certificates, running
from tests.support.services.etcd_users import require_password


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates") / "pem")


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Etcd]:
    with running(tmp_path_factory.mktemp("encrypted"), certificates.server) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Etcd]:
    """An etcd that talks only to those who show a certificate."""
    with running(tmp_path_factory.mktemp("mutual"), certificates.server, certificates.ca) as etcd:
        yield etcd


@asynccontextmanager
async def opened(access: EtcdAccess) -> AsyncIterator[EtcdLedger]:
    client = EtcdClient(access)
    try:
        yield await EtcdLedger.open(client, "c", new_cluster_id="c")
    finally:
        await client.close()


async def refused(access: EtcdAccess) -> str:
    """Why an agent does not get in: what it logs while it waits."""
    with pytest.raises(LedgerUnavailable) as raised:
        async with opened(access):
            pass
    return str(raised.value)


async def use(ledger: EtcdLedger) -> None:
    """Everything that an agent does with a ledger."""
    await ledger.notices()
    before = await ledger.head()
    session = await ledger.open_session("a")
    positions = await append_singly(ledger, session, 3)
    await ledger.keep_session(session)
    assert not await ledger.is_session_ended("a", session)
    assert numbers(await take(ledger, before.position, 3)) == [0, 1, 2]
    pointer = pointer_at(positions[-1], appends_count=before.appends_count + 3)
    assert await ledger.set_snapshot((await ledger.load()).pointer, pointer)
    await ledger.trim(positions[-1])
    assert (await ledger.load()).pointer == pointer
    assert 0 < (await ledger.size()).pressure < 1
    await ledger.close_session(session)


class TestTls:
    async def test_an_encrypted_etcd(self, encrypted: Etcd, certificates: Certificates) -> None:
        async with opened(EtcdAccess(endpoints=encrypted.endpoints, is_tls=True, ca=certificates.ca)) as ledger:
            await use(ledger)

    async def test_a_client_certificate(self, mutual: Etcd, certificates: Certificates) -> None:
        cert, key = certificates.client
        access = EtcdAccess(endpoints=mutual.endpoints, is_tls=True, ca=certificates.ca, cert=cert, key=key)
        async with opened(access) as ledger:
            await use(ledger)

    async def test_etcd_expects_tls(self, encrypted: Etcd) -> None:
        assert "it may expect TLS: use etcds://" in await refused(EtcdAccess(endpoints=encrypted.endpoints))

    async def test_etcd_does_not_speak_tls(self, etcd: Etcd, certificates: Certificates) -> None:
        access = EtcdAccess(endpoints=etcd.endpoints, is_tls=True, ca=certificates.ca)
        assert "does it speak TLS at all?" in await refused(access)

    async def test_etcds_certificate_is_of_another_authority(self, encrypted: Etcd, certificates: Certificates) -> None:
        access = EtcdAccess(endpoints=encrypted.endpoints, is_tls=True, ca=certificates.other_ca)
        assert "no authority of --ledger-ca vouches for its certificate" in await refused(access)
        assert "no authority of --ledger-ca" in await refused(replace(access, ca=None))

    async def test_etcds_certificate_is_for_another_host(self, certificates: Certificates, tmp_path: Path) -> None:
        with running(tmp_path, certificates.elsewhere) as etcd:
            access = EtcdAccess(endpoints=etcd.endpoints, is_tls=True, ca=certificates.ca)
            assert "its certificate is for other host names" in await refused(access)

    async def test_etcd_asks_for_a_client_certificate(self, mutual: Etcd, certificates: Certificates) -> None:
        access = EtcdAccess(endpoints=mutual.endpoints, is_tls=True, ca=certificates.ca)
        assert "asks for a client certificate; give --ledger-cert" in await refused(access)

    async def test_etcd_does_not_know_the_client_certificate(self, mutual: Etcd, certificates: Certificates) -> None:
        cert, key = certificates.stranger
        access = EtcdAccess(endpoints=mutual.endpoints, is_tls=True, ca=certificates.ca, cert=cert, key=key)
        assert f"does not accept the certificate {cert}" in await refused(access)

    async def test_a_certificate_that_was_taken_away(
        self, encrypted: Etcd, certificates: Certificates, tmp_path: Path
    ) -> None:
        missing = tmp_path / "gone.pem"
        access = EtcdAccess(endpoints=encrypted.endpoints, is_tls=True, ca=missing)
        assert f"{missing}, which the ledger's TLS needs, cannot be read" in await refused(access)
        missing.write_bytes(certificates.ca.read_bytes())
        async with opened(access):
            pass


@asynccontextmanager
async def administered(channel: grpc.aio.Channel) -> AsyncIterator[None]:
    async with channel:
        await require_password(channel, users={USER: (PASSWORD, PREFIX)})
        yield


class TestUsers:
    async def test_a_user_who_may_use_the_clusters_keys_and_nothing_else(self, tmp_path: Path) -> None:
        with Etcd(tmp_path) as etcd:
            access = EtcdAccess(endpoints=etcd.endpoints, user=USER, password=PASSWORD)
            async with administered(grpc.aio.insecure_channel(etcd.endpoints[0])), opened(access) as ledger:
                await use(ledger)
                assert "their user may not: etcd lets only role root" in (await ledger.notices())[0]
            assert "check user and password" in await refused(replace(access, password="wrong"))
            assert "check user and password" in await refused(replace(access, user="nobody"))
            assert "agent without --ledger-user" in await refused(replace(access, user=None))
            client = EtcdClient(access)
            with pytest.raises(LedgerUnavailable, match="may read and write the keys below /penstock/CLUSTER/"):
                await EtcdLedger.open(client, "another", new_cluster_id="c")
            await client.close()

    async def test_a_password_over_tls(self, certificates: Certificates, tmp_path: Path) -> None:
        with running(tmp_path, certificates.server) as etcd:
            credentials = grpc.ssl_channel_credentials(certificates.ca.read_bytes())
            access = EtcdAccess(endpoints=etcd.endpoints, is_tls=True, ca=certificates.ca, user=USER, password=PASSWORD)
            async with administered(grpc.aio.secure_channel(etcd.endpoints[0], credentials)), opened(access) as ledger:
                await use(ledger)
            assert "check user and password" in await refused(replace(access, password="wrong"))

    async def test_a_client_certificate_that_names_the_user(self, certificates: Certificates, tmp_path: Path) -> None:
        with running(tmp_path, certificates.server, certificates.ca) as etcd:
            cert, key = certificates.client
            credentials = grpc.ssl_channel_credentials(
                certificates.ca.read_bytes(), key.read_bytes(), cert.read_bytes()
            )
            access = EtcdAccess(endpoints=etcd.endpoints, is_tls=True, ca=certificates.ca, cert=cert, key=key)
            async with administered(grpc.aio.secure_channel(etcd.endpoints[0], credentials)), opened(access) as ledger:
                await use(ledger)

    async def test_an_etcd_that_asks_for_the_password_only_later(self, tmp_path: Path) -> None:
        with Etcd(tmp_path) as etcd:
            access = EtcdAccess(endpoints=etcd.endpoints, user=USER, password=PASSWORD)
            async with opened(access) as ledger:
                session = await ledger.open_session("a")
                async with asyncio.TaskGroup() as group:
                    reading = group.create_task(take(ledger, START, 2))
                    await append_singly(ledger, session, 1)
                    async with administered(grpc.aio.insecure_channel(etcd.endpoints[0])):
                        await until_known(lambda: append_singly(ledger, session, 1, first=1))
                assert numbers(reading.result()) == [0, 1]
