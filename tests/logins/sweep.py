"""Sends drawn exchanges to `SaslSession` and judges each answer: nothing raises, no client without a password is in.

Rules: an output is one of the known kinds; an answer has at most ANSWER_BYTES_MAX; `Success` never comes, since no
client has the password; the session holds no more than what it was sent.
"""

import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from protocol.auth.decoy_credentials import decoy, shapes_of
from protocol.auth.sasl_bearer import BearerExchange
from protocol.auth.sasl_exchange import BearerCheck, PasswordCheck, SaslExchange, SaslIdentity
from protocol.auth.sasl_plain import PlainExchange
from protocol.auth.sasl_session import Failure, ListVersions, Output, Reply, SaslRules, SaslSession
from protocol.auth.scram import ScramAccount, ScramExchange
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.auth.scram_keys import credential_of, salt_password
from protocol.limits import MIB, SASL_NAME_CHARS_MAX
from tests.logins.draw import Drawing, last_token
from tests.support.auth.sasl_frames import authenticate

ANSWER_BYTES_MAX: Final = 8 * SASL_NAME_CHARS_MAX
"""An answer repeats the nonce and the names of a client, and nothing else that it sent."""
HELD_BYTES_MAX: Final = 4 * MIB
"""The memory that all exchanges together may leave behind."""
ITERATIONS: Final = 2


def _credential(mechanism: ScramMechanism) -> ScramCredential:
    salted = salt_password("the password", salt=b"salt", iterations=ITERATIONS, mechanism=mechanism)
    return credential_of(salted, salt=b"salt", iterations=ITERATIONS, mechanism=mechanism)


_CREDENTIALS: Final = {mechanism: _credential(mechanism) for mechanism in ScramMechanism}
_SHAPES: Final = shapes_of(_CREDENTIALS.values())


class LoginFault(AssertionError):
    """An exchange broke a rule."""


@dataclass(slots=True)
class LoginSweep:
    """The exchanges of one seed."""

    seed: int
    frames_count: int = 0
    outputs: Counter[str] = field(default_factory=Counter)

    def run(self, frames: int) -> str:
        """Sends so many frames. Raises `LoginFault`; returns what came of them."""
        drawing, exchanges = Drawing(self.seed), 0
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            while self.frames_count < frames:
                self._exchange(drawing)
                exchanges += 1
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        if held > HELD_BYTES_MAX:
            raise LoginFault(f"seed {self.seed}: {exchanges} exchanges left {held} bytes behind")
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.outputs.items()))
        return f"{self.frames_count} frames in {exchanges} exchanges, seed {self.seed}: {counts}"

    def _exchange(self, drawing: Drawing) -> None:
        session = SaslSession(_RULES)
        if drawing.chance(3) and not self._send(session, drawing.mutated(drawing.first_frame())):
            return
        frame, mechanism, handshake_version = drawing.handshake()
        output = self._send(session, drawing.mutated(frame))
        version = drawing.version() if handshake_version else None
        client = drawing.client(mechanism)
        token = client.first()
        if mechanism == "PLAIN":
            token = drawing.plain()
        elif mechanism == "OAUTHBEARER":
            token = drawing.bearer()
        while output is not None and not drawing.chance(8):
            output = self._send(session, drawing.mutated(_framed(token, version)))
            if isinstance(output, Reply):
                token = last_token(client, output.answer, version)

    def _send(self, session: SaslSession, frame: bytes) -> Output | None:
        """The output; None where the connection is over."""
        self.frames_count += 1
        try:
            output = session.receive(memoryview(frame))
            while isinstance(output, PasswordCheck | BearerCheck):
                output = session.checked(None)
        except Exception as error:
            raise LoginFault(f"seed {self.seed}, frame {self.frames_count}: {frame!r} raised {error!r}") from error
        self.outputs[type(output).__name__] += 1
        match output:
            case ListVersions():
                return output
            case Reply() | Failure():
                if output.answer is not None and len(output.answer) > ANSWER_BYTES_MAX + len(frame):
                    raise LoginFault(f"seed {self.seed}: {frame!r} has an answer of {len(output.answer)} bytes")
                return output if isinstance(output, Reply) else None
            case _:
                raise LoginFault(f"seed {self.seed}, frame {self.frames_count}: {frame!r} let a client in")


def _framed(token: bytes, version: int | None) -> bytes:
    return token if version is None else bytes(authenticate(token, version))


def _begin_exchange(mechanism: str) -> SaslExchange:
    if mechanism == "PLAIN":
        return PlainExchange()
    if mechanism == "OAUTHBEARER":
        return BearerExchange()
    scram = ScramMechanism[mechanism.replace("-", "_")]

    def find_account(name: str, is_token: bool) -> ScramAccount:
        if name == "alice" and not is_token:
            return ScramAccount(credential=_CREDENTIALS[scram], identity=SaslIdentity(name=name))
        return ScramAccount(credential=decoy(b"secret", name, scram, _SHAPES), identity=None)

    return ScramExchange(scram, find_account=find_account, server_nonce="servernonce")


_RULES: Final = SaslRules(
    mechanisms=("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"),
    begin_exchange=_begin_exchange,
    lifetime_ms=lambda mechanism, identity: 0,
)
