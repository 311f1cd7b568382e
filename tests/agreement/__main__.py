"""Kafka, tables and the Spark source read the same records, while agents are killed: `make agreement`.

    python -m tests.agreement [--minutes 5] [--topics 100] [--partitions 16] [--seed 1] [--folder PATH]

Exit status 1 where two views differ, the bucket does not hold each record once, or an agent failed by itself. Goals of
freshness are told, and decide nothing: they depend on the machine. Logs and the report are in the folder, a temporary
one by default.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.agreement.report import as_text
from tests.agreement.run import Run, RunSettings
from tests.agreement.spark import spark_session


def main() -> int:
    parser = argparse.ArgumentParser(prog="make agreement", description=__doc__)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=16, help="of each topic")
    parser.add_argument("--minutes", type=float, default=5, help="of load; what is compared afterwards takes as long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2, help="of producers")
    parser.add_argument("--producers", type=int, default=4, help="in each process")
    parser.add_argument("--records", type=int, default=100, help="of a transaction, on the average")
    parser.add_argument("--pause-ms", type=int, default=0, help="of a producer between two transactions")
    parser.add_argument("--archive-interval-s", type=int, default=30, help="between two archive passes of a topic")
    parser.add_argument("--folder", type=Path, help="where data and logs go")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleaned up
    folder = (arguments.folder or Path(tempfile.mkdtemp(prefix="penstock-agreement-"))).absolute()
    if folder.exists() and any(folder.iterdir()):
        print(f"{folder} has something in it: name a folder that is new or empty by --folder", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    print(f"logs: {folder}", flush=True)
    settings = RunSettings(
        folder=folder,
        topics=arguments.topics,
        partitions=arguments.partitions,
        seconds=arguments.minutes * 60,
        seed=arguments.seed,
        processes=arguments.processes,
        producers=arguments.producers,
        records=arguments.records,
        pause_ms=arguments.pause_ms,
        archive_interval_s=arguments.archive_interval_s,
    )
    try:
        with spark_session(folder / "spark") as spark:
            report = Run(settings=settings, spark=spark).run()
    except KeyboardInterrupt:
        print("interrupted: everything is ended", file=sys.stderr)
        return 130
    text = as_text(report)
    (folder / "report.txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0 if report.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
