"""The sessions of a ledger that one process holds: they live in its memory, and none outlives the process.

Rule: pure decisions; the caller makes the id of a new session durable before it is added, so that it never comes twice.
"""

from collections.abc import Sequence

from coordinator.ledger.append_rules import NewestGroup
from coordinator.ledger.port import Fenced, SessionHeld
from protocol.types import SessionId


class LiveSessions:
    """The sessions that live, by name, and what each of them appended last."""

    def __init__(self) -> None:
        self._by_name: dict[str, SessionId] = {}
        self.newest: dict[SessionId, NewestGroup | None] = {}
        """The newest group of each session that lives."""

    def check_free(self, name: str) -> None:
        """Raise `SessionHeld` where a session lives under the name."""
        live = self._by_name.get(name)
        if live is not None:
            raise SessionHeld(f"session {live} lives under the name {name!r} in this process: close it first", live)

    def add(self, name: str, session: SessionId) -> None:
        self._by_name[name] = session
        self.newest[session] = None

    def close(self, session: SessionId) -> None:
        self._by_name = {name: live for name, live in self._by_name.items() if live != session}
        self.newest.pop(session, None)

    def revoke(self, name: str, session: SessionId) -> None:
        """Close the session, where it is the one under the name."""
        if self._by_name.get(name) == session:
            self.close(session)

    def check(self, session: SessionId) -> None:
        """Raise `Fenced` where it is over."""
        if session not in self.newest:
            raise Fenced(f"session {session} is over")

    def is_ended(self, name: str, session: SessionId) -> bool:
        return self._by_name.get(name) != session

    def check_none(self) -> None:
        """Raise `SessionHeld` while any session lives."""
        if self._by_name:
            raise SessionHeld(f"agents still run under the names {self.names()}: stop them first")

    def names(self) -> Sequence[str]:
        """The names under which sessions live, in order."""
        return sorted(self._by_name)
