"""Rights, SCRAM keys and names of principals are those that Apache Kafka 4.3.1's own classes give.

`make security` asks 100,000 questions.
"""

from collections.abc import Callable
from pathlib import Path

from tests.compat.oracle.comparison import SOURCE, compare
from tests.support.services.java import JavaProgram

WORLDS = 300
SEED = 21


def test_rights_and_keys_are_kafkas(compile_java: Callable[[Path], JavaProgram], tmp_path: Path) -> None:
    found = compare(compile_java(SOURCE), tmp_path, seed=SEED, worlds=WORLDS, credentials=20, names=1_500)
    assert not found.differences, f"{len(found.differences)} of {found.questions} differ:\n{found.differences[0]}"
    assert 0.1 * found.questions < found.allowed < 0.9 * found.questions
