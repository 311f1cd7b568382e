"""Levels of this process's loggers, as Kafka's tools see and set them (KIP-412). They last until it ends.

Requests have Kafka's names of levels. One that Python does not have is its next lower level, which logs more.
Source: org.apache.kafka.server.logger.LoggingController, kafka.server.logger.RuntimeLoggerManager (Kafka 4.3).
"""

import logging
from collections.abc import Mapping

ROOT = "root"
LEVELS: Mapping[str, int] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}
"""Kafka's names of levels, the highest first."""


def loggers() -> dict[str, str]:
    """Kafka's name of each logger's level, its own or an inherited one, by the logger's name."""
    names = sorted(logging.Logger.manager.loggerDict)
    return {ROOT: _word(logging.getLogger()), **{name: _word(logging.getLogger(name)) for name in names}}


def is_known(name: str) -> bool:
    return name == ROOT or name in logging.Logger.manager.loggerDict


def set_level(name: str, level: str) -> None:
    """Set a known logger's level, by one of Kafka's names."""
    _logger(name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """Let a known logger, not the root, inherit its parent's level."""
    _logger(name).setLevel(logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _word(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((word for word, least in LEVELS.items() if level >= least), "TRACE")
