"""Bytes that clients of TLS send, changed on their way: handshakes, records of data, alerts, and records made up.

Rule: a stream depends on its seed and on nothing else, but for the keys that OpenSSL draws.
"""

import random
import ssl
import struct
from typing import Final

from tests.support.tls_clients import MemoryClient

RECORD_TYPES: Final = (20, 21, 22, 23, 24, 0, 255)
"""Change of cipher, alert, handshake, data, heartbeat, and types that there are not."""
VERSIONS: Final = (b"\x03\x01", b"\x03\x03", b"\x03\x04", b"\x03\x00", b"\x02\x00", b"\x00\x00", b"\xff\xff")
HANDSHAKE_TYPES: Final = (0, 1, 2, 4, 8, 11, 13, 14, 15, 16, 20, 24, 254, 255)
LENGTHS: Final = (0, 1, 2, 16, 255, 16_384, 16_385, 18_432, 65_535)
FRAGMENT_BYTES_MAX: Final = 600


class TlsDrawing:
    """Draws clients, and changes what they send."""

    def __init__(self, seed: int, contexts: tuple[ssl.SSLContext, ...]) -> None:
        """`contexts` are those of clients: of TLS 1.2 and 1.3, with and without a certificate."""
        self._random = random.Random(seed)
        self._contexts = contexts

    def client(self) -> MemoryClient:
        return MemoryClient(self._random.choice(self._contexts))

    def chance(self, one_in: int) -> bool:
        return self._random.randrange(one_in) == 0

    def payload(self) -> bytes:
        """Data for the server."""
        return self._random.randbytes(self._random.choice((1, 40, 300)))

    def mutated(self, flight: bytes) -> bytes:
        """The flight, or one with a few changes, such as another length, a repeated part or a record between."""
        draw = self._random
        for _ in range(draw.choice((0, 0, 1, 1, 1, 2, 5))):
            at = draw.randrange(len(flight) + 1)
            match draw.randrange(8):
                case 0:
                    flight = flight[:at] + bytes([draw.randrange(256)]) + flight[at + 1 :]
                case 1 if flight:
                    at = draw.randrange(len(flight))
                    flight = flight[:at] + bytes([flight[at] ^ 1 << draw.randrange(8)]) + flight[at + 1 :]
                case 2:
                    flight = flight[:at]
                case 3:
                    flight = flight[:at] + flight[at + draw.randrange(1, 9) :]
                case 4:
                    flight = flight + flight[at:]
                case 5:
                    flight = flight[:3] + struct.pack(">H", draw.choice(LENGTHS)) + flight[5:]
                case 6:
                    flight = self.record() + flight
                case _:
                    flight = flight[:at] + self.record() + flight[at:]
        return flight

    def record(self) -> bytes:
        """A record that no client made: a kind, a version, a length that may be wrong, and bytes."""
        draw = self._random
        body = draw.randbytes(draw.randrange(FRAGMENT_BYTES_MAX))
        if draw.randrange(2):
            body = bytes([draw.choice(HANDSHAKE_TYPES)]) + struct.pack(">I", draw.choice(LENGTHS))[1:] + body
        length = len(body) if draw.randrange(3) else draw.choice(LENGTHS)
        return bytes([draw.choice(RECORD_TYPES)]) + draw.choice(VERSIONS) + struct.pack(">H", length) + body
