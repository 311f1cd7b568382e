"""Drawn sequences of what people do with frames: `format("penstock")` beside Spark's Kafka source. `make frames`.

    python -m tests.frames [--sequences 2000] [--seed 1]

Exit status 1 at the first sequence whose answers differ; its seed and its steps are printed, and `--seed N --sequences
1` plays it again.
"""

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.agreement.spark import spark_session
from tests.frames.playing import OPTIONS, Differs, World, tiny_queries
from tests.support.services.java import SHORT_LIVED
from tests.support.services.local_services import PenstockFactory

PRINTED_EACH = 10
JAVA_OPTIONS = (*SHORT_LIVED, "-XX:ReservedCodeCacheSize=256m")
"""Without its second compiler Java has room for a fifth of its compiled code, and compiles again and again."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make frames", description=__doc__)
    parser.add_argument("--sequences", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1, help="of the first sequence; each has the next one")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleaned up
    seeds = range(arguments.seed, arguments.seed + arguments.sequences)
    print(f"seeds {seeds.start} to {seeds.stop - 1}", flush=True)
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-frames-")))
        broker = PenstockFactory(folder=folder, stack=stack)(options=OPTIONS)
        session = stack.enter_context(spark_session(folder / "spark", "spark-kafka", java_options=JAVA_OPTIONS))
        stack.enter_context(tiny_queries(session))
        world = World(broker=broker, session=session, folder=folder)
        for seed in seeds:
            try:
                world.play(seed)
            except Differs as error:
                print(error, file=sys.stderr)
                return 1
            if world.tally.sequences % PRINTED_EACH == 0:
                print(f"{time.monotonic() - started:7.0f} s: {world.tally}", flush=True)
    print(f"no difference: {world.tally}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
