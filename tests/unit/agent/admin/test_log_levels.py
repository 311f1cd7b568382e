"""Levels of loggers in Kafka's words."""

import logging
from collections.abc import Iterator

import pytest

from agent.admin.log_levels import LEVELS, ROOT, is_known, loggers, set_level, unset_level

NAME = "tests.log_levels.one"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger(NAME)
    yield found
    found.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("word", "level"),
    [("FATAL", 50), ("ERROR", 40), ("WARN", 30), ("INFO", 20), ("DEBUG", 10), ("TRACE", 10)],
)
def test_a_level_is_set_by_kafkas_word(logger: logging.Logger, word: str, level: int) -> None:
    set_level(NAME, word)
    assert logger.level == level
    assert loggers()[NAME] == ("DEBUG" if word == "TRACE" else word)


def test_a_logger_without_a_level_tells_that_of_the_next_one_above(logger: logging.Logger) -> None:
    set_level(NAME, "ERROR")
    logging.getLogger(f"{NAME}.below")
    assert loggers()[f"{NAME}.below"] == "ERROR"
    unset_level(NAME)
    assert loggers()[NAME] == loggers()["tests.log_levels"]
    assert logger.level == logging.NOTSET


def test_a_level_between_two_words_is_the_one_that_tells_more(logger: logging.Logger) -> None:
    logger.setLevel(25)
    assert loggers()[NAME] == "INFO"
    logger.setLevel(5)
    assert loggers()[NAME] == "TRACE"


def test_the_root_is_known_and_what_nobody_logs_to_is_not(logger: logging.Logger) -> None:
    assert all(map(is_known, (ROOT, logger.name, "tests.log_levels")))
    assert not is_known("no.such.logger")
    assert next(iter(loggers())) == ROOT
    assert loggers()[ROOT] in LEVELS
