"""Exchanges of a client that does not have the password, with some of their bytes changed."""

import random
import struct
from collections.abc import Callable
from typing import Final

from protocol.auth.scram_credentials import ScramMechanism
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.auth.sasl_frames import (
    api_versions,
    authenticate,
    handshake,
    header,
    metadata,
    read_authenticate_answer,
)

STRANGE: Final = (
    b"",
    b"\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff\x0f",
    b"=",
    b",",
    b",p=",
    b",m=x",
    b"n=",
    b"=2C",
    b"\x01",
    b"\x01\x01",
    b"auth=Bearer ",
    b"tokenauth=true",
    "\u00e9\u0130".encode(),
)
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "GSSAPI", "")
WRONG_PASSWORD: Final = "not the password"


class Drawing:
    """A stream of frames that depends on its seed alone."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def mutated(self, frame: bytes) -> bytes:
        """The frame, or one with a few bytes changed, cut out, put in or repeated."""
        draw = self._random
        for _ in range(draw.choice((0, 0, 0, 0, 0, 1, 1, 2, 5))):
            at = draw.randrange(len(frame) + 1)
            match draw.randrange(5):
                case 0:
                    frame = frame[:at] + bytes([draw.randrange(256)]) + frame[at + 1 :]
                case 1:
                    frame = frame[:at] + draw.choice(STRANGE) + frame[at:]
                case 2:
                    frame = frame[:at]
                case 3:
                    frame = frame[:at] + frame[at + draw.randrange(1, 9) :]
                case _:
                    frame = frame + frame[at:]
        return frame

    def first_frame(self) -> bytes:
        """A frame that a connection may begin with, or one that it may not."""
        version = self._random.choice((0, 1, 2, 3, 4, 99))
        drawn: Callable[[], memoryview | bytes] = self._random.choice(
            (
                lambda: api_versions(version) if version in (0, 1, 2, 3, 4) else header(18, version),
                metadata,
                lambda: authenticate(b"\0alice\0x"),
                lambda: self._random.randbytes(self._random.randrange(60)),
            )
        )
        return bytes(drawn())

    def handshake(self) -> tuple[bytes, str, int]:
        """A SaslHandshake, its mechanism and its version."""
        mechanism, version = self._random.choice(MECHANISMS), self._random.choice((0, 1, 1, 1))
        return bytes(handshake(mechanism, version)), mechanism, version

    def chance(self, one_in: int) -> bool:
        return self._random.randrange(one_in) == 0

    def version(self) -> int:
        """A version of SaslAuthenticate."""
        return self._random.randrange(3)

    def client(self, mechanism: str) -> DrawnScramClient:
        """A client of SCRAM without the password."""
        scram = ScramMechanism.SCRAM_SHA_512 if mechanism.endswith("512") else ScramMechanism.SCRAM_SHA_256
        user = self._random.choice(("alice", "stranger", "a,b=c"))
        gs2 = self._random.choice(("n,,", "y,,", f"n,a={user},"))
        return DrawnScramClient(mechanism=scram, user=user, password=WRONG_PASSWORD, gs2_header=gs2)

    def plain(self) -> bytes:
        """A token of PLAIN."""
        return f"{self._random.choice(('', 'alice'))}\0alice\0{WRONG_PASSWORD}".encode()

    def bearer(self) -> bytes:
        """A token of OAUTHBEARER."""
        return b"n,,\x01auth=Bearer abc.def.ghi\x01\x01"


def last_token(client: DrawnScramClient, answer: bytes, version: int | None) -> bytes:
    """The client's last message for the server's answer, raw where there is no version.

    An answer that was made for a changed message may be one that the client cannot read: then any token.
    """
    try:
        token = answer if version is None else read_authenticate_answer(answer, version).token
        return client.final(token)
    except (AssertionError, IndexError, ValueError, struct.error, UnicodeDecodeError):
        return b"c=biws,r=x,p=AAAA"
