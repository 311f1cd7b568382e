"""Drawn subjects of certificates, mapping rules and names of SCRAM, as lines for the oracle, with Penstock's answers.

Values are drawn from few characters, among them those that rules, names and Java escape.
Source: tests/compat/oracle/SecurityOracle.java says what a line is.
"""

import random
from collections.abc import Iterator
from typing import Final

from agent.security.tls.principal_rules import InvalidRules, read_rules
from protocol.auth.distinguished_names import name_text
from protocol.auth.sasl_exchange import Challenge, SaslIdentity
from protocol.auth.scram import ScramAccount, ScramExchange
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from tests.compat.oracle.worlds import Question

_MECHANISM: Final = ScramMechanism.SCRAM_SHA_256
_CREDENTIAL: Final = ScramCredential(salt=b"salt", stored_key=bytes(32), server_key=bytes(32), iterations=4096)
FAILED: Final = "!"
NONE: Final = "-"
OIDS: Final = {
    "2.5.4.3": b"\x55\x04\x03",
    "2.5.4.6": b"\x55\x04\x06",
    "2.5.4.7": b"\x55\x04\x07",
    "2.5.4.8": b"\x55\x04\x08",
    "2.5.4.9": b"\x55\x04\x09",
    "2.5.4.10": b"\x55\x04\x0a",
    "2.5.4.11": b"\x55\x04\x0b",
    "2.5.4.5": b"\x55\x04\x05",
    "0.9.2342.19200300.100.1.1": b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01",
    "0.9.2342.19200300.100.1.25": b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19",
    "1.2.840.113549.1.9.1": b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01",
}
"""Types of attributes, in DER: those that Java names, and two that it does not."""
TEXT_TAGS: Final = (0x0C, 0x13, 0x16, 0x14)
LETTERS: Final = 'abcXYZ019 ,=+<>#;"\\-._@/*\u00e9\u0130\u03a3\U0001f600'
WORDS: Final = (
    "Alice",
    "alice",
    "Bob Smith",
    "O'Neil",
    "x",
    "Sales",
    "example.org",
    "svc-1",
    "\u00c4rger",
    "Stra\u00dfe",
)
PATTERNS: Final = (
    ("^CN=(.*?),.*$", 1),
    ("^CN=([^,]+),OU=([^,]+).*$", 2),
    ("CN=([a-zA-Z0-9 .-]+)(,.*)?", 2),
    (r".*OU=(\w+).*", 1),
    (r"^(?:.*,)?O=(\S+?)(?:,.*)?$", 1),
    ("^.*UID=([0-9]+).*$", 1),
    ("(?i)^cn=(.*?)(,.*)?$", 2),
    ("CN=(a|b|x)+.*", 1),
    (".*", 0),
    ("CN=Alice", 0),
    ("^$", 0),
)
REPLACEMENTS: Final = ("$1", "$2", "$1@$2", "svc-$1", "x", "", "$0", r"a\/b", r"\$1", "$12", "user")
SCRAM_LETTERS: Final = "ab=2C3D,n=r"
"""ASCII alone: Kafka takes no other name, and RFC 5802 does."""


def draw_names(seed: int, count: int) -> Iterator[Question]:
    """Questions about names and rules: a third of them each of subjects, rules and names of SCRAM."""
    drawn = random.Random(seed)
    for number in range(count):
        yield (_subject, _mapping, _scram_name)[number % 3](drawn)


def _element(tag: int, contents: bytes) -> bytes:
    size = len(contents)
    length = (
        bytes([size]) if size < 128 else b"\x81" + bytes([size]) if size < 256 else b"\x82" + size.to_bytes(2, "big")
    )
    return bytes([tag]) + length + contents


def _text(drawn: random.Random) -> str:
    if drawn.random() < 0.5:
        return drawn.choice(WORDS)
    return "".join(drawn.choice(LETTERS) for _ in range(drawn.randrange(1, 7)))


def _attribute(drawn: random.Random) -> bytes:
    text, tag = _text(drawn), drawn.choice(TEXT_TAGS)
    if tag != 0x0C:  # the other texts are read as ASCII here; Java's answers to other bytes depend on its version
        text = text.encode("ascii", "ignore").decode() or "x"
    if tag == 0x13:
        text = "".join(char for char in text if char.isalnum() or char in " '()+,-./:=?") or "x"
    oid = drawn.choice(list(OIDS.values()))
    return _element(0x30, _element(0x06, oid) + _element(tag, text.encode()))


def _name(drawn: random.Random) -> bytes:
    """An X.500 name in DER. Relative names of two attributes are in DER's order."""
    names: list[bytes] = []
    for _ in range(drawn.randrange(1, 5)):
        attributes = sorted({_attribute(drawn) for _ in range(2 if drawn.random() < 0.1 else 1)})
        names.append(_element(0x31, b"".join(attributes)))
    return _element(0x30, b"".join(names))


def _subject(drawn: random.Random) -> Question:
    name = _name(drawn)
    return Question(f"DN\t{name.hex()}", (), _shown(name_text(name)))


def _mapping(drawn: random.Random) -> Question:
    rules: list[str] = []
    for _ in range(drawn.randrange(1, 4)):
        pattern, groups = drawn.choice(PATTERNS)
        # Differs from Kafka, as its module says: without groups a reference to one is rejected at the start.
        fitting = [
            text for text in REPLACEMENTS if groups or ("$1" not in text and "$2" not in text and "{" not in text)
        ]
        rules.append(f"RULE:{pattern}/{drawn.choice(fitting)}/{drawn.choice(('', '', 'L', 'U'))}")
    if drawn.random() < 0.4:
        rules.insert(drawn.randrange(len(rules) + 1), "DEFAULT")
    text = drawn.choice((",", ", ", " ,")).join(rules)
    if drawn.random() < 0.1:
        at = drawn.randrange(len(text))
        text = text[:at] + drawn.choice("/,R:x ") + text[at + 1 :]
    subject = name_text(_name(drawn))
    try:
        name = read_rules(text).name_of(subject)
    except InvalidRules as error:
        if "neither DEFAULT nor RULE" not in str(error):
            return _mapping(drawn)  # as above: Kafka finds it when a subject matches, or takes what Python does not
        return Question(f"MAP\t{text.encode().hex()}\t{subject.encode().hex()}", (), FAILED)
    answer = NONE if name is None else _shown(name)
    return Question(f"MAP\t{text.encode().hex()}\t{subject.encode().hex()}", (), answer)


def _scram_name(drawn: random.Random) -> Question:
    name = "".join(drawn.choice(SCRAM_LETTERS) for _ in range(drawn.randrange(1, 8)))
    if drawn.random() < 0.5:
        name = name.replace("=", "=3D").replace(",", "=2C")
    message = f"n,,n={name},r={drawn.choice(('abc', '', 'a,b', 'a=b', 'x,ext=1'))}".encode()
    found: list[str] = []

    def find_account(user: str, is_token: bool) -> ScramAccount:
        found.append(f"{user}{' by token' if is_token else ''}")
        return ScramAccount(credential=_CREDENTIAL, identity=SaslIdentity(name=user))

    step = ScramExchange(_MECHANISM, find_account=find_account, server_nonce="s").receive(message)
    return Question(f"FIRST\t{message.hex()}", (), _shown(found[0]) if isinstance(step, Challenge) else FAILED)


def _shown(text: str) -> str:
    return "=" + text.encode().hex()
