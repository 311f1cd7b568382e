"""A plugin of pytest that gives kafka-python's fixtures a broker with a protected listener, where they would start one.

Rule: what a test asks for (transport, mechanism) is held against the broker that is there; its clients' parameters are
those that the fixtures give them.
"""

import json
import os

from test.integration.fixtures import KafkaFixture  # type: ignore[import-not-found]  # beside this file in a run

ADDRESS, PROTOCOL, USER, PASSWORD = json.loads(os.environ["PROTECTED_BROKER"])
MECHANISM = "SCRAM-SHA-512"


class ProtectedBroker(KafkaFixture):  # type: ignore[misc]
    """A broker that runs by itself."""

    broker_user, broker_password = USER, PASSWORD

    def _cli_connect_args(self) -> list[str]:
        """The script of this run adds the properties of a client."""
        return ["--bootstrap-server", ADDRESS]

    def kafka_run_class_env(self) -> dict[str, str]:
        """Without a configuration of logs, which is no part of kafka-python's source distribution."""
        return {**os.environ, "KAFKA_LOG4J_OPTS": ""}


def instance(
    _broker_id: int, *, transport: str = PROTOCOL, sasl_mechanism: str | None = None, **_: object
) -> ProtectedBroker:
    """In place of `KafkaFixture.instance`, which starts one."""
    assert transport == PROTOCOL, f"the test is about {transport}, the broker about {PROTOCOL}"
    if sasl_mechanism is None and PROTOCOL.startswith("SASL"):
        sasl_mechanism = MECHANISM
    host, _colon, port = ADDRESS.rpartition(":")
    broker = ProtectedBroker(
        host, int(port), 0, transport=transport, sasl_mechanism=sasl_mechanism, partitions=4, external=True
    )
    broker.ssl_dir = os.getcwd()
    return broker


KafkaFixture.instance = instance
