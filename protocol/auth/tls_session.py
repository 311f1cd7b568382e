"""The server's side of TLS on one connection, without I/O: encrypted bytes in, plaintext out, and the reverse.

It stands between two memory BIOs of `ssl`. The shell calls `receive_data` with what arrived, `shake_hands` until that
returns True, then `read_into` and `write`, and sends what `data_to_send` returns after each of these calls. A call of
`shake_hands` takes about 1.5 ms of CPU and may run in a thread, as long as no other call is made meanwhile.
After `TlsFailed` nothing is read any more: send `data_to_send`, which has the alert for the peer, and close.
Specification: RFC 8446 (TLS 1.3), RFC 5246 (TLS 1.2).
"""

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from protocol.wire import Buffer


class TlsFailed(Exception):
    """The peer's bytes are not TLS, or it cannot be agreed with. The message is the reason, for a log."""


class TlsSession:
    """One connection's TLS."""

    __slots__ = ("_incoming", "_outgoing", "is_ended", "ssl_object")

    def __init__(self, context: ssl.SSLContext) -> None:
        """`context` is of PROTOCOL_TLS_SERVER, with its certificate."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.ssl_object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        """For its peer's certificate, version and cipher. Its reads and writes are this session's."""
        self.is_ended = False
        """Whether the peer sends nothing more."""

    @property
    def has_unread(self) -> bool:
        """Whether `read_into` may return bytes without another `receive_data`."""
        return bool(self._incoming.pending or self.ssl_object.pending())

    def receive_data(self, data: Buffer) -> None:
        """Take encrypted bytes of the peer. They are copied."""
        self._incoming.write(data)

    def receive_eof(self) -> None:
        """The peer closed its side: what was received is the last."""
        self._incoming.write_eof()

    def data_to_send(self) -> bytes:
        """The encrypted bytes for the peer since the last call; may be empty."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def shake_hands(self) -> bool:
        """Take the handshake as far as the received bytes allow; True once it is done. Raises `TlsFailed`."""
        try:
            self.ssl_object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsFailed(reason_of(error)) from error
        return True

    def read_into(self, buffer: memoryview) -> int:
        """The number of decrypted bytes that were put into `buffer`; 0 where there are none now, or `is_ended`.

        It is filled as far as bytes are there: one byte less than its size means that there are no more.
        Raises `TlsFailed`; what the same call decrypted before is dropped.
        """
        # typeshed has the form without a buffer only, which returns bytes.
        read = cast("Callable[[int, memoryview], int]", self.ssl_object.read)
        count, size = 0, len(buffer)
        try:
            while count < size:
                # A call returns at most one record, of 16 KiB.
                decrypted = read(size - count, buffer[count:])
                if not decrypted:
                    self.is_ended = True
                    break
                count += decrypted
        except ssl.SSLWantReadError:
            return count
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            # Without close_notify the peer's bytes may have been cut off. Requests have their length, so a part of one
            # is never taken for a whole one.
            self.is_ended = True
        except ssl.SSLError as error:
            raise TlsFailed(reason_of(error)) from error
        return count

    def write(self, data: Buffer) -> None:
        """Encrypt bytes for the peer, in records of 16 KiB. Raises `TlsFailed` where the session has failed."""
        view = memoryview(data)
        try:
            while view:
                view = view[self.ssl_object.write(view) :]
        except ssl.SSLError as error:
            raise TlsFailed(reason_of(error)) from error

    def close(self) -> None:
        """Announce to the peer that nothing more comes (close_notify). Its own one is not waited for, as in Kafka."""
        # It wants to read the peer's, or the session failed or never began: all the same now.
        with suppress(ssl.SSLError):
            self.ssl_object.unwrap()


def reason_of(error: ssl.SSLError) -> str:
    """OpenSSL's reason, in the words of a user where they are known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not valid: {error.verify_message}"
    text = getattr(error, "reason", None) or error.strerror or str(error)
    return _REASONS.get(text, text.replace("_", " ").lower() if text.isupper() else text)


_REASONS = {
    "WRONG_VERSION_NUMBER": "the client does not speak TLS: its security.protocol has to be SSL or SASL_SSL",
    "HTTP_REQUEST": "the client speaks HTTP without TLS",
    "UNSUPPORTED_PROTOCOL": "the client speaks an older version of TLS than ssl.enabled.protocols",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and ssl.client.auth requires one",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust this agent's certificate: its truststore lacks the authority",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client rejects this agent's certificate: unknown authority, or other name",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client rejects this agent's certificate",
}
