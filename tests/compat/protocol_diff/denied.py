"""python -m tests.compat.protocol_diff.denied FOLDER: records what Kafka answers to a client without rights.

Starts Apache Kafka with an authorizer and SASL/PLAIN in FOLDER, holds every conversation, and writes
kafka-4.3.1-denied.json.
"""

import argparse
from pathlib import Path

from tests.compat.kafka_target import kafka_target
from tests.compat.protocol_diff.cases import CASES
from tests.compat.protocol_diff.comparison import ask, write_recorded
from tests.compat.protocol_diff.logins import DENIED, KAFKA_SETTINGS, RECORDED_DENIED
from tests.compat.protocol_diff.messages import kafka_definitions
from tools.jars import jar_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder that does not exist yet")
    folder = parser.parse_args().folder
    with kafka_target(folder, 1, KAFKA_SETTINGS) as target:
        answers = ask(target.bootstrap, CASES, kafka_definitions(jar_folder("kafka")), logins=DENIED)
    write_recorded(answers, RECORDED_DENIED)


if __name__ == "__main__":
    main()
