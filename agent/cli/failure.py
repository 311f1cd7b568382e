"""How a command ends that did not do what was asked."""

EXIT_FAILED = 1
EXIT_USAGE = 2


class CommandFailed(Exception):
    """The message says what was wrong, with the value, and what to do; it is shown without a traceback."""

    def __init__(self, message: str, *, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Unavailable(CommandFailed):
    """The agent, or what it needs, is away for now: the same may be asked again."""
