"""The address of an agent, and the login that requests to it carry.

Rule: secrets are in no `repr`, and so in no log or plan. A file with a secret is read again for each request, so that
whatever replaces it, such as Kubernetes, renews the login of a running query. Spark sends this object to its executors:
a secret in an option goes along, and a file has to be on each of their machines.
Source: RFC 6750 (Bearer), RFC 7617 (Basic).
"""

from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path

from storage.object_store import StoreMisconfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAccess:
    """An agent's HTTP port, and a login: a token or a user, or neither for an agent that needs none."""

    url: str
    """http[s]://HOST:PORT, without a path."""
    token: str = field(default="", repr=False)
    token_file: str = ""
    """A file whose first line with a token is `TOKEN` or `User:NAME TOKEN`, as in the agents' --http-token-file."""
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    """A file with the password alone."""
    ca_file: str = ""
    """PEM certificates of the authorities of the agent's certificate; empty for those of the system."""
    store_ca_file: str = ""
    """The same for the object store."""

    def headers(self) -> dict[str, str]:
        """The headers of a request with the login. Raises `StoreMisconfigured` where a file has none."""
        if self.token or self.token_file:
            return {"Authorization": f"Bearer {self.token or _token_of(self.token_file)}"}
        if self.user:
            password = self.password or _text_of("penstock.password.file", self.password_file).strip("\r\n")
            return {"Authorization": f"Basic {b64encode(f'{self.user}:{password}'.encode()).decode()}"}
        return {}


def first_token(text: str) -> str:
    """The first token in the text of a file of tokens; empty without one that can be sent."""
    tokens = [line.split()[-1] for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return tokens[0] if tokens and tokens[0].isascii() else ""


def _token_of(path: str) -> str:
    token = first_token(_text_of("penstock.token.file", path))
    if not token:
        raise StoreMisconfigured(f"penstock.token.file={path} has no token: write one of the agents' --http-token-file")
    return token


def _text_of(option: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise StoreMisconfigured(
            f"{option}={path} cannot be read: {error.strerror}; the driver and each executor read the file on their "
            "own machine"
        ) from error
