"""python -m tests.compat.protocol_diff BOOTSTRAP [--only PATTERN] [--reference] [--record FILE] [--list] [--show]

Asks a broker what the cases ask, and prints where its answers differ from those of Apache Kafka 4.3.1. A recording is
made from a broker of one node with num.partitions=4 and group.initial.rebalance.delay.ms=0 whose id is not 0.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from protocol.api_versions import API_VERSIONS
from tests.compat.protocol_diff.cases import CASES
from tests.compat.protocol_diff.comparison import ask, compare, read_allowed, read_recorded, write_recorded
from tests.compat.protocol_diff.messages import kafka_definitions
from tools.jars import jar_folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", nargs="?", help="host:port of the broker")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose names match")
    parser.add_argument("--reference", action="store_true", help="the broker is Kafka: run all, allow no difference")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the answers, compare nothing")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--show", action="store_true", help="print the answers")
    options = parser.parse_args()
    cases = [case for case in CASES if re.search(options.only, case.name)]
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    if options.bootstrap is None:
        parser.error("the broker's address is missing")
    definitions = kafka_definitions(jar_folder("kafka"))
    if options.record is not None or options.show:
        answers = ask(options.bootstrap, cases, definitions)
        if options.record is not None:
            write_recorded(answers, options.record)
        else:
            print("\n".join(f"{name} {json.dumps(answers[name])}" for name in answers))
        return 0
    served = {row.name for row in API_VERSIONS}
    if options.reference:
        served |= {api for case in cases for api in case.needs}
    report = compare(
        options.bootstrap,
        cases,
        definitions,
        served=served,
        recorded=read_recorded(),
        allowed=[] if options.reference else read_allowed(),
    )
    print("\n".join(report.lines()))
    return 0 if report.is_passed else 1


if __name__ == "__main__":
    sys.exit(main())
