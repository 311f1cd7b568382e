"""Secrets of the configuration: passwords and private keys, given as a text or by the path of a file.

A secret has no place on a command line, which every user of the machine can read: `agent.config.option_sources`
rejects it there. Nothing shows a secret: not `repr`, a log line, an error, or DescribeConfigs.
"""

from dataclasses import dataclass, field
from pathlib import Path

from agent.config.option_sources import InvalidSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One secret. Either `path` is set, or `text` has the value."""

    name: str
    """The config that has it, for error messages."""
    text: str = field(default="", repr=False)
    path: Path | None = None

    def read(self) -> str:
        """The value; of a file, all of it but the line breaks at its end. Raises `InvalidSettings`."""
        if self.path is None:
            return self.text
        try:
            return self.path.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise InvalidSettings(f"{self.name}.file={self.path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InvalidSettings(f"{self.name}.file={self.path} is not UTF-8") from error
