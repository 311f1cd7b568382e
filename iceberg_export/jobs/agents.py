"""A client of an agent's HTTP port, for jobs.

Responses are JSON. A missing or a rejecting response raises an error that names the agent. A token, or a login, is sent
with each request, and is in no message.
"""

import os
import ssl
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from iceberg_export.spark.options import OptionError
from iceberg_export.spark.tenant.access import first_token
from protocol.decoding import decode_json_object
from protocol.limits import JOB_AGENT_SECONDS_MAX

AGENT_FILE_HELP = "file whose first line is a bearer token of the agent's --http-token-file"
AGENT_CA_HELP = "PEM file of the authorities of the agent's certificate, for an https:// address"
AUTHORIZATION_VARIABLE = "PENSTOCK_JOB_AUTHORIZATION"
"""The variable with the Authorization header of a user, by `penstock lake`: arguments are seen by every user."""
BAD_REQUEST = 400
"""The lowest HTTP status of a rejected request."""


class AgentUnavailable(Exception):
    """No agent answers at the address, which the message names."""


class AgentRejected(Exception):
    """The agent rejected the request; the message is its reason, `status` the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def read_token(path: str) -> str:
    """The first token of a file; "" without a path. Raises `OptionError`.

    Its lines are those of the agents' --http-token-file: `TOKEN` or `User:NAME TOKEN`.
    """
    if not path:
        return ""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise OptionError(f"--token-file {path} cannot be read: {error.strerror}") from error
    token = first_token(text)
    if not token:
        raise OptionError(f"--token-file {path} has no token: write one of the agents' --http-token-file")
    return token


def authorization_of_job(token_file: str) -> str:
    """The Authorization header of a job: the token of its file, else of its environment. Raises `OptionError`."""
    token = read_token(token_file)
    return f"Bearer {token}" if token else os.environ.get(AUTHORIZATION_VARIABLE, "")


class AgentAddress:
    """An agent's HTTP listener, [https://]HOST:PORT.

    `authorization`: the header of that name, a token or a login; "" where it needs none.
    `ca_file`: the authorities of its certificate as PEM; "" for those of the system.
    """

    def __init__(self, address: str, authorization: str = "", ca_file: str = "") -> None:
        scheme, _, host_port = address.rpartition("://")
        self._address = host_port
        self._url = f"{scheme or 'http'}://{host_port}"
        self._ca_file = ca_file
        self._headers = {"Authorization": authorization} if authorization else {}

    def get(self, path: str) -> bytes:
        """The body of the response. Raises `AgentUnavailable`, `AgentRejected`."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: bytes) -> bytes:
        """The body of the response. `body`: JSON. Raises `AgentUnavailable`, `AgentRejected`."""
        return self._ask("POST", path, body)

    def _connection(self) -> HTTPConnection:
        if not self._url.startswith("https://"):
            return HTTPConnection(self._address, timeout=JOB_AGENT_SECONDS_MAX)
        context = ssl.create_default_context(cafile=self._ca_file or None)
        return HTTPSConnection(self._address, timeout=JOB_AGENT_SECONDS_MAX, context=context)

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        try:
            with closing(self._connection()) as connection:
                kind = {"Content-Type": "application/json"} if body else {}
                connection.request(method, path, body, {**self._headers, **kind})
                response = connection.getresponse()
                content = response.read()
        except (OSError, HTTPException, UnicodeError) as error:  # UnicodeError: the address is no valid host name
            raise AgentUnavailable(f"no agent answers at {self._url}: {error}") from error
        if response.status >= BAD_REQUEST:
            raise AgentRejected(response.status, _error_text(content))
        return content


def _error_text(body: bytes) -> str:
    """The message and the remedy of an error response, which is JSON; else the beginning of the body."""
    try:
        content: dict[str, Any] = decode_json_object(body)
        return "; ".join(filter(None, (content["error"]["message"], content["error"]["remedy"])))
    except (ValueError, KeyError, TypeError):
        return f"{body[:300]!r}"
