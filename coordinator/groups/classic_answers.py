"""The answers of one classic group to JoinGroup and SyncGroup, and the rest of the work of an event.

In: members with the tickets of their waiting requests, and errors. Out: `Work` for the group's coordinator. Every
ticket is answered once: an answer clears the member's ticket.
"""

from coordinator.commands.group_values import ClassicGroup
from coordinator.groups.classic_members import LiveMember
from coordinator.groups.classic_messages import Join, JoinAnswer, SyncAnswer, Ticket, Work
from protocol.errors import ErrorCode


class ClassicAnswers:
    """Collects the work of events until it is taken."""

    def __init__(self) -> None:
        self._work = Work()

    def take(self) -> Work:
        """The work that has come up since the last call."""
        work, self._work = self._work, Work()
        return work

    def write(self, value: ClassicGroup) -> None:
        """Write a generation; it replaces one that was not taken yet."""
        self._work.write = value

    def log(self, message: str) -> None:
        self._work.log_messages.append(message)

    def join(self, ticket: Ticket, answer: JoinAnswer) -> None:
        """Answer a JoinGroup."""
        self._work.answers.append((ticket, answer))

    def sync(self, ticket: Ticket, answer: SyncAnswer) -> None:
        """Answer a SyncGroup."""
        self._work.answers.append((ticket, answer))

    def reject(self, join: Join, error: ErrorCode, member_id: str) -> None:
        """Answer a JoinGroup with an error, for a request that did not wait."""
        self.join(join.ticket, JoinAnswer(error_code=error, member_id=member_id))

    def end_join(self, member: LiveMember, error: ErrorCode, member_id: str) -> None:
        """Answer the member's waiting JoinGroup, if there is one, with an error."""
        if member.join_ticket is not None:
            self.join(member.join_ticket, JoinAnswer(error_code=error, member_id=member_id))
            member.join_ticket = None

    def end_sync(self, member: LiveMember, error: ErrorCode) -> bool:
        """Answer the member's waiting SyncGroup with an error; False if there is none."""
        if member.sync_ticket is None:
            return False
        self.sync(member.sync_ticket, SyncAnswer(error_code=error))
        member.sync_ticket = None
        return True
