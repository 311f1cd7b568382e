"""python -m tests.compat.protocol_diff.denied FOLDER [--only PATTERN]: records answers to a client without rights.

Starts Apache Kafka with an authorizer and SASL/PLAIN in FOLDER, holds every conversation, or those
that are asked for, and writes kafka-4.3.1-denied.json.
"""

import argparse
import re
from pathlib import Path

from tests.compat.kafka_target import kafka_target
from tests.compat.protocol_diff.cases import CASES
from tests.compat.protocol_diff.comparison import ask, write_recorded
from tests.compat.protocol_diff.logins import DENIED, DENIED_CLIENT, RECORDED_DENIED, kafka_settings
from tests.compat.protocol_diff.messages import kafka_definitions
from tools.jars import jar_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder that does not exist yet")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose names match")
    asked = parser.parse_args()
    cases = [case for case in CASES if re.search(asked.only, case.name)]
    with kafka_target(asked.folder, 1, kafka_settings([DENIED_CLIENT])) as target:
        answers = ask(target.bootstrap, cases, kafka_definitions(jar_folder("kafka")), logins=DENIED)
    write_recorded(answers, RECORDED_DENIED)


if __name__ == "__main__":
    main()
