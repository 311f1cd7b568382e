"""The errors with which a command ends."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNDECIDED = 3
"""A recovery needs a decision that only its operator can make: the same command would end like this again."""


class CommandFailed(Exception):
    """The command failed. The message has the wrong value and what to do; it is shown without a traceback."""

    def __init__(self, message: str, *, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.is_logged = False
        """Whether the message is in the log on stderr already, and must not be written there again."""


class Unavailable(CommandFailed):
    """The agent, its ledger or its store does not answer now: the same command may succeed later."""
