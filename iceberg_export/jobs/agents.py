"""What jobs ask of an agent's HTTP port.

Rule: an answer is JSON; what is no answer, and a refusal, is an error that says whose. A token is shown where there is
one, and told to nobody.
"""

from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from iceberg_export.spark.options import OptionError
from protocol.decoding import decode_json_object
from protocol.limits import JOB_AGENT_SECONDS_MAX

BAD_REQUEST = 400
"""From here on answers are refusals."""


class AgentUnavailable(Exception):
    """The agent is away, or is none; the message says which one."""


class AgentRejected(Exception):
    """The agent says why, in `message`; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def read_token(path: str) -> str:
    """The first token of a file as agents' --http-token-file has it, "" without a path. Raises `OptionError`."""
    if not path:
        return ""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise OptionError(f"--http-token-file {path} cannot be read: {error.strerror}") from error
    tokens = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not tokens or not tokens[0].isascii():
        raise OptionError(f"--http-token-file {path} holds no token: give the file that the agents have")
    return tokens[0]


class AgentAddress:
    """An agent's HTTP listener, HOST:PORT. `token`: one of its --http-token-file, "" where it has none."""

    def __init__(self, address: str, token: str = "") -> None:
        self._address = address
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str) -> bytes:
        """The body. Raises `AgentUnavailable`, `AgentRejected`."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: bytes) -> bytes:
        """As `get`; the body is JSON."""
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        try:
            with closing(HTTPConnection(self._address, timeout=JOB_AGENT_SECONDS_MAX)) as connection:
                kind = {"Content-Type": "application/json"} if body else {}
                connection.request(method, path, body, {**self._headers, **kind})
                answer = connection.getresponse()
                found = answer.read()
        except (OSError, HTTPException, UnicodeError) as error:  # the last one is of a name that is no host's
            raise AgentUnavailable(f"no agent answers at http://{self._address}: {error}") from error
        if answer.status >= BAD_REQUEST:
            raise AgentRejected(answer.status, _words(found))
        return found


def _words(body: bytes) -> str:
    """Of an error, in JSON."""
    try:
        found: dict[str, Any] = decode_json_object(body)
        return "; ".join(filter(None, (found["error"]["message"], found["error"]["remedy"])))
    except (ValueError, KeyError, TypeError):
        return f"{body[:300]!r}"
