"""Apache Kafka as the broker under test, for the baseline: brokers of one cluster, the first also its controller.

Rule: it is configured to what the suites expect (`tests.compat.target.SETTINGS`, topics on first use, an authorizer
that allows what no rule denies); nothing is tuned beyond that.
"""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.compat.access import PLAINTEXT, Access, make_access
from tests.compat.target import SETTINGS, JavaHome, Target, provided_java
from tests.support.ports import free_port
from tests.support.processes import Process, is_listening
from tests.support.services.java import KAFKA_LOGGING

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
COMMON: Mapping[str, str] = {
    **SETTINGS,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "8",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "log.cleaner.backoff.ms": "1000",
}


@contextmanager
def kafka_target(
    folder: Path,
    brokers_count: int,
    settings: Mapping[str, str],
    *,
    has_racks: bool = False,
    protocol: str = PLAINTEXT,
) -> Iterator[Target]:
    """Kafka with fresh data in `folder`; with `has_racks` each broker is in `RACK` and its node id.

    Where its listener for clients is protected, brokers speak to each other by another one, which is not.
    """
    folder.mkdir(parents=True)
    access = make_access(protocol, folder / "access")
    java = provided_java()
    logging = folder / "log4j2.properties"
    logging.write_text(KAFKA_LOGGING, encoding="utf-8")
    controller_port = free_port()
    bootstraps: list[str] = []
    with ExitStack() as stack:
        for node in range(1, brokers_count + 1):
            port = free_port()
            own = _settings(folder, node, port, controller_port)
            if access is not None:
                own |= _protected(own, access, port)
            if has_racks:
                own["broker.rack"] = f"RACK{node}"
            properties = folder / f"{node}.properties"
            lines = (f"{name}={value}\n" for name, value in {**COMMON, **own, **settings}.items())
            properties.write_text("".join(lines), encoding="utf-8")
            _start(stack, java, folder, properties, port, users=list(access.kafka_users()) if access else [])
            bootstraps.append(f"127.0.0.1:{port}")
        yield Target(bootstrap=",".join(bootstraps), agents_count=brokers_count, access=access)


def _settings(folder: Path, node: int, port: int, controller_port: int) -> dict[str, str]:
    """What differs from broker to broker."""
    listener, controller = f"PLAINTEXT://127.0.0.1:{port}", f"CONTROLLER://127.0.0.1:{controller_port}"
    is_controller = node == 1
    return {
        "process.roles": "broker,controller" if is_controller else "broker",
        "node.id": str(node),
        "listeners": f"{listener},{controller}" if is_controller else listener,
        "advertised.listeners": listener,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": str(folder / f"data-{node}"),
    }


def _protected(own: Mapping[str, str], access: Access, port: int) -> dict[str, str]:
    """The listeners of a broker whose clients come by another than its fellow brokers."""
    inner = f"PLAINTEXT://127.0.0.1:{free_port()}"
    client = f"CLIENT://127.0.0.1:{port}"
    controllers = [each for each in own["listeners"].split(",") if each.startswith("CONTROLLER:")]
    return {
        "listeners": ",".join([client, inner, *controllers]),
        "advertised.listeners": f"{client},{inner}",
        "listener.security.protocol.map": (f"{COMMON['listener.security.protocol.map']},CLIENT:{access.protocol}"),
        "super.users": "User:ANONYMOUS",
        **access.kafka_settings(),
    }


def _start(
    stack: ExitStack, java: JavaHome, folder: Path, properties: Path, port: int, *, users: Sequence[str]
) -> None:
    logging = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"
    start = [str(java.java), "-Xmx1g", logging, "-cp", java.class_path]
    tool = [*start, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties), *users]
    subprocess.run(tool, cwd=folder, capture_output=True, text=True, timeout=120, check=True)
    process = stack.enter_context(Process([*start, "kafka.Kafka", properties], folder, name=f"kafka-{properties.stem}"))
    process.wait_until(lambda: is_listening(port), "Apache Kafka")
