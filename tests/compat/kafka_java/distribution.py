"""A folder shaped like Apache Kafka's distribution: `bin/kafka-*.sh`, for suites that call Kafka's own scripts.

Rule: a script starts its class from the jars that are there; where the broker's listener is protected it passes the
properties of a client. It reads no other configuration.
"""

from pathlib import Path

from tests.compat.access import Access
from tests.compat.target import JavaHome

SCRIPTS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
}


def write_distribution(folder: Path, java: JavaHome, access: Access | None = None) -> None:
    """Writes the scripts into `folder`/bin."""
    config = f' --command-config "{access.write_java()}"' if access else ""
    (folder / "bin").mkdir(parents=True)
    for name, main in SCRIPTS.items():
        script = folder / "bin" / f"{name}.sh"
        options = f'-XX:TieredStopAtLevel=1 -cp "{java.class_path}"'
        script.write_text(f'#!/bin/sh\nexec "{java.java}" {options} {main}{config} "$@"\n')
        script.chmod(0o755)
