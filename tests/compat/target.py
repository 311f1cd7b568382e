"""A broker under test, and Penstock started as one: one agent on its embedded store, or three over etcd and MinIO.

Rule: suites know an address alone, so that they say of any broker what they say of Penstock. What is started here is
ended with the `with` block.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agent.ledger.node_ids import DEFAULT_NAME, node_id_of
from tests.compat.access import PLAINTEXT, Access, make_access
from tests.support.auth.token_issuer import token_issuer
from tests.support.certificates import TestAuthority
from tests.support.cluster.cluster import ClusterFactory
from tests.support.cluster.one_address import one_address
from tests.support.cluster.relay_listener import RELAY_LISTEN, relay_by_tls, super_users
from tests.support.processes import provided
from tests.support.services.etcd import Etcd
from tests.support.services.local_services import MinioProcess, PenstockFactory
from tools import jars, java_runtime

SETTINGS = {
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""What the suites expect of a broker beside topics that are made on first use."""
AGENTS = (DEFAULT_NAME, "b", "c")
"""Names of a cluster's agents; the first one's node id is 1, that of the Kafka broker whose answers were recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A broker, or a cluster, that suites run against."""

    bootstrap: str
    agents_count: int
    access: Access | None = None
    """How clients reach it where its listener is protected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaHome:
    """Java and the jars of Apache Kafka and of Kafka Streams, with which the Java suites run."""

    java: Path
    jars: Path
    streams_jars: Path

    @property
    def class_path(self) -> str:
        return f"{self.jars}{os.sep}*{os.pathsep}{self.streams_jars}{os.sep}*"


def provided_java() -> JavaHome:
    """Those of `make setup-test`."""
    return JavaHome(
        java=provided(java_runtime.java_home()) / "bin" / "java",
        jars=provided(jars.jar_folder("kafka")),
        streams_jars=provided(jars.jar_folder("streams")),
    )


@contextmanager
def penstock_target(
    folder: Path,
    agents_count: int,
    settings: Mapping[str, str],
    *,
    has_racks: bool = False,
    protocol: str = PLAINTEXT,
    has_issuer: bool = False,
    has_one_address: bool = False,
) -> Iterator[Target]:
    """Penstock with fresh data in `folder`: `SETTINGS`, and the broker configs `settings` over them.

    With `has_racks` each of several agents is in a zone of its own, `RACK` and its node id. `protocol` is that of the
    listener; with `has_issuer` its clients bring tokens. With `has_one_address` one address leads to all agents, and
    they relay requests of groups to each other.
    """
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        access = make_access(protocol, folder / "access")
        if access and has_issuer:
            access = replace(access, issuer=stack.enter_context(token_issuer(access.authority)))
        settings = {**SETTINGS, **(access.penstock_settings() if access else {}), **settings}
        options = access.penstock_options() if access else {}
        listen = f"{access.protocol}://127.0.0.1:0" if access else "127.0.0.1:0"
        if agents_count == 1:
            start = PenstockFactory(folder=folder, stack=stack)
            one = start(settings=settings, options=options, listen=listen)
            yield Target(bootstrap=one.bootstrap, agents_count=1, access=access)
            return
        minio = MinioProcess(folder / "minio")
        minio.wait(stack.enter_context(minio.start()))
        etcd = stack.enter_context(Etcd(folder / "etcd"))
        cluster = ClusterFactory(etcd=etcd, minio=minio.server, folder=folder, stack=stack)()
        address = stack.enter_context(one_address()) if has_one_address else None
        authority = access.authority if access else TestAuthority(folder=folder)
        for name in AGENTS[:agents_count]:
            own_options, own_settings = {**_options(name, has_racks=has_racks), **options}, settings
            if address is not None:
                if access is not None:
                    own_options, own_settings = access.for_one_listener(own_options, own_settings)
                own_options |= {"listen": RELAY_LISTEN, "advertise": f"{protocol}://{address.bootstrap}"}
                own_settings = {**own_settings, **relay_by_tls(authority, name, protocol)}
                own_settings["super.users"] = f"{settings.get('super.users', '')};{super_users([], AGENTS)}".lstrip(";")
            cluster.start(name, settings=own_settings, options=own_options, listen=listen)
        addresses = [agent.bootstrap for agent in cluster.agents.values()]
        if address is not None:
            address.agents = addresses
            addresses = [address.bootstrap]
        yield Target(bootstrap=",".join(addresses), agents_count=agents_count, access=access)


def _options(name: str, *, has_racks: bool) -> dict[str, str]:
    zone = {"zone": f"RACK{node_id_of(name, ())}"} if has_racks else {}
    return {"flush-interval-ms": "0", **zone}
