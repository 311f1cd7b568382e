"""Asks the oracle the questions of drawn worlds, and lists those that Penstock answers otherwise."""

from dataclasses import dataclass
from pathlib import Path

from tests.compat.oracle.names import draw_names
from tests.compat.oracle.worlds import Question, draw_credentials, draw_worlds
from tests.support.services.java import JavaProgram

SOURCE = Path(__file__).with_name("SecurityOracle.java")
SECONDS_MAX = 600


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of one run."""

    questions: int
    allowed: int
    """Questions that Kafka answers with yes: neither none nor all of them."""
    differences: list[str]
    """Each a world, its question, and both answers."""


def compare(oracle: JavaProgram, folder: Path, *, seed: int, worlds: int, credentials: int, names: int) -> Comparison:
    """Draws worlds and credentials, and compares all answers."""
    lines: list[str] = []
    questions: list[Question] = []
    for world_lines, world_questions in draw_worlds(seed, worlds):
        lines += world_lines
        questions += world_questions
    others = [*draw_credentials(seed, credentials), *draw_names(seed, names)]
    lines += [question.line for question in others]
    questions += others
    asked, answered = folder / "questions.txt", folder / "answers.txt"
    asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
    oracle.run(str(asked), str(answered), timeout_seconds=SECONDS_MAX)
    answers = answered.read_text(encoding="utf-8").splitlines()
    assert len(answers) == len(questions), f"{len(questions)} questions, {len(answers)} answers"
    differences = [
        "\n".join([*question.world, question.line, f"Kafka: {answer}, Penstock: {question.answer}"])
        for question, answer in zip(questions, answers, strict=True)
        if answer != question.answer
    ]
    return Comparison(len(questions), answers.count("1"), differences)
