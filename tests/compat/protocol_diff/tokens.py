"""python -m tests.compat.protocol_diff.tokens FOLDER [--only PATTERN]: records what Kafka answers about tokens.

Starts Apache Kafka with SASL and a key of delegation tokens in FOLDER, holds the conversations about them, and writes
kafka-4.3.1-tokens.json.
"""

import argparse
import re
from pathlib import Path

from tests.compat.kafka_target import kafka_target
from tests.compat.protocol_diff.cases.tokens import CASES
from tests.compat.protocol_diff.comparison import ask, write_recorded
from tests.compat.protocol_diff.logins import RECORDED_TOKENS, TOKENS, kafka_token_settings
from tests.compat.protocol_diff.messages import kafka_definitions
from tools.jars import jar_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder that does not exist yet")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose names match")
    asked = parser.parse_args()
    cases = [case for case in CASES if re.search(asked.only, case.name)]
    with kafka_target(asked.folder, 1, kafka_token_settings()) as target:
        answers = ask(target.bootstrap, cases, kafka_definitions(jar_folder("kafka")), logins=TOKENS)
    write_recorded(answers, RECORDED_TOKENS)


if __name__ == "__main__":
    main()
