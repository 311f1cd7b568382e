"""`python -m tests.compat.oracle`: 100,000 drawn questions about rights, 1,000 about SCRAM keys, and 10,000 tokens."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.compat.oracle.comparison import SOURCE, compare
from tests.compat.oracle.drawn_tokens import SOURCE as TOKENS
from tests.compat.oracle.drawn_tokens import compare_tokens
from tests.compat.oracle.worlds import QUESTIONS_PER_WORLD
from tests.support.processes import provided
from tests.support.services.java import compile_source
from tools import jars, java_runtime

QUESTIONS = 100_000


def main() -> int:
    """Returns 1 where an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--credentials", type=int, default=1_000)
    parser.add_argument("--names", type=int, default=10_000, help="subjects, rules and names of SCRAM")
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    chosen = parser.parse_args()
    java = provided(java_runtime.java_home()) / "bin" / "java"
    worlds = -(-chosen.questions // QUESTIONS_PER_WORLD)
    kafka_jars = provided(jars.jar_folder("kafka"))
    with tempfile.TemporaryDirectory() as folder:
        oracle = compile_source(SOURCE, Path(folder), java=java, kafka_jars=kafka_jars)
        found = compare(
            oracle, Path(folder), seed=chosen.seed, worlds=worlds, credentials=chosen.credentials, names=chosen.names
        )
        judge = compile_source(TOKENS, Path(folder), java=java, kafka_jars=kafka_jars)
        now_s = int(time.time())
        tokens = compare_tokens(judge, Path(folder), seed=chosen.seed, count=chosen.tokens, now_s=now_s)
    for difference in [*found.differences[:3], *tokens.differences[:3]]:
        sys.stdout.write(difference + "\n\n")
    sys.stdout.write(
        f"seed {chosen.seed}: {found.questions} questions, {found.allowed} allowed, "
        f"{len(found.differences)} answered otherwise than by Kafka\n"
    )
    sys.stdout.write(
        f"seed {chosen.seed}: {tokens.tokens} tokens, {tokens.accepted} accepted, {tokens.meant.total()} rejected as "
        f"listed, {len(tokens.differences)} judged otherwise than by Kafka\n"
    )
    return 1 if found.differences or tokens.differences else 0


if __name__ == "__main__":
    sys.exit(main())
