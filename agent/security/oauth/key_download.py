"""One request for a document of an issuer of tokens, over TLS, within bounds of time and bytes.

The request is plain HTTP/1.1 whose connection ends with its answer, so that bytes can be read first and understood
then: an answer that is cut off, too long or no answer at all is an `IssuerUnavailable`. A redirection is not followed:
the URL of the configuration alone says whose keys are believed.
"""

import asyncio
import io
import ssl
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from agent.config.oauth_settings import KeySource
from agent.runtime.clock import Clock
from agent.runtime.threads import run_in_thread
from protocol.limits import ISSUER_KEYS_BYTES_MAX, ISSUER_KEYS_SECONDS_MAX

HTTPS_PORT: Final = 443
OK: Final = 200

if TYPE_CHECKING:
    import socket


class IssuerUnavailable(Exception):
    """The issuer has not given its keys. The message says why; ask again later."""


async def download_keys(source: KeySource, clock: Clock) -> str:
    """The text that the issuer's server has at the URL. Raises `IssuerUnavailable`; a cancellation leaves nothing."""
    try:
        async with clock.timeout(ISSUER_KEYS_SECONDS_MAX):
            context, headers = await run_in_thread(_prepare, source)
            answer = await _exchange(source.url, context, headers)
    except TimeoutError as error:
        raise IssuerUnavailable(f"no answer within {ISSUER_KEYS_SECONDS_MAX:.0f} s") from error
    except ssl.SSLCertVerificationError as error:
        raise IssuerUnavailable(f"its certificate is not trusted: {error.verify_message}") from error
    except (OSError, ValueError) as error:
        raise IssuerUnavailable(f"{type(error).__name__}: {error}") from error
    return _body_of(answer)


def _prepare(source: KeySource) -> tuple[ssl.SSLContext, str]:
    """TLS and the further headers of one request. Files are read each time, since Kubernetes replaces them."""
    context = ssl.create_default_context(cafile=source.authorities)
    if source.token_file is None:
        return context, ""
    token = Path(source.token_file).read_text(encoding="ascii").strip()
    if not token.isprintable():
        raise ValueError(f"{source.token_file} has more than a token")
    return context, f"Authorization: Bearer {token}\r\n"


async def _exchange(url: str, context: ssl.SSLContext, headers: str) -> bytes:
    """Sends the request. All bytes of the answer, or one more than there may be."""
    parts = urlsplit(url)
    host = parts.hostname
    assert host is not None, "the settings have a host"
    reader, writer = await asyncio.open_connection(
        host, parts.port or HTTPS_PORT, ssl=context, server_hostname=host, limit=ISSUER_KEYS_BYTES_MAX
    )
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        writer.write(
            f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: application/json\r\nUser-Agent: penstock\r\n"
            f"{headers}Connection: close\r\n\r\n".encode("ascii")
        )
        answer = bytearray()
        while len(answer) <= ISSUER_KEYS_BYTES_MAX and (more := await reader.read(1 << 16)):
            answer += more
        return bytes(answer)
    finally:
        writer.transport.abort()


class _AnswerSocket:
    """A socket, as far as `HTTPResponse` needs one."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def makefile(self, mode: str) -> io.BytesIO:
        del mode
        return io.BytesIO(self._answer)


def _body_of(answer: bytes) -> str:
    if len(answer) > ISSUER_KEYS_BYTES_MAX:
        raise IssuerUnavailable(f"its answer is longer than {ISSUER_KEYS_BYTES_MAX} bytes")
    response = HTTPResponse(cast("socket.socket", _AnswerSocket(answer)))
    try:
        response.begin()
        if response.status != OK:
            raise IssuerUnavailable(f"its answer has the status {response.status}")
        return response.read().decode()
    except (HTTPException, ValueError) as error:
        raise IssuerUnavailable(f"its answer cannot be read: {type(error).__name__}") from error
