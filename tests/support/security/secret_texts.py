"""Secrets of a test, and every text in which they were looked for."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import Process


@dataclass(slots=True)
class Secrets:
    """The secrets of a test, and every text in which they were looked for."""

    names: dict[str, str] = field(default_factory=dict[str, str])
    """The secrets, and how each was given."""
    texts: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, secret: str, how: str) -> str:
        self.names[secret] = how
        return secret

    def look_in(self, place: str, text: str) -> None:
        self.texts[place] = self.texts.get(place, "") + text

    @property
    def leaks(self) -> list[str]:
        return [
            f"{how} is in {place}"
            for place, text in self.texts.items()
            for secret, how in self.names.items()
            if secret in text
        ]


def look_at_process(secrets: Secrets, process: Process) -> None:
    secrets.look_in("ps", Path(f"/proc/{process.pid}/cmdline").read_text())
    secrets.look_in("stderr", process.stderr)
    secrets.look_in("stdout", process.stdout)
