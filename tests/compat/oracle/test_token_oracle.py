"""Tokens are accepted and rejected as by Apache Kafka 4.3.1's own class, but for the differences that are listed.

`make security` judges 10,000 tokens.
"""

import time
from collections.abc import Callable
from pathlib import Path

from tests.compat.oracle.drawn_tokens import DIFFERENCES, SOURCE, compare_tokens
from tests.support.services.java import JavaProgram

TOKENS = 2_000
SEED = 21


def test_tokens_are_judged_as_by_kafka(compile_java: Callable[[Path], JavaProgram], tmp_path: Path) -> None:
    oracle = compile_java(SOURCE)
    found = compare_tokens(oracle, tmp_path, seed=SEED, count=TOKENS, now_s=int(time.time()))
    assert not found.differences, f"{len(found.differences)} of {found.tokens} differ:\n{found.differences[0]}"
    assert 0.1 * found.tokens < found.accepted < 0.9 * found.tokens
    assert set(found.meant) == set(DIFFERENCES)
