"""Drawn worlds of ACLs with questions, as lines for the oracle, and Penstock's own answers to them.

Few names, principals and hosts, so that ACLs meet each other.
Source: tests/compat/oracle/SecurityOracle.java says what a line is.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from coordinator.security.acl_index import AclIndex
from coordinator.security.acls import Acl
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType, bits
from protocol.auth.principals import EVERY_USER, Principal
from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import credential_of, salt_password

QUESTIONS_PER_WORLD: Final = 21
ACLS_MAX: Final = 14
NAMES: Final = (
    "a",
    "ab",
    "abc",
    "abd",
    "b",
    "ba",
    "a.b",
    "a-b",
    "hardcode",
    "hard",
    "aB",
    "é",
    "ab*",
    "\U0001f600",
    "~",
)
PRINCIPALS: Final = tuple(Principal("User", name) for name in ("u", "v", "w", "u:v"))
HOSTS: Final = ("10.0.0.1", "10.0.0.2")
RESOURCE_TYPES: Final = (ResourceType.TOPIC, ResourceType.GROUP)
ALLOWED: Final = tuple(operation for operation in Operation if operation > Operation.ANY)
SUPER_USERS: Final = ((), (PRINCIPALS[2],), (PRINCIPALS[0], PRINCIPALS[2]))
PASSWORDS: Final = ("x", "pencil", "Lösung 1", "p=1,q=2", "\U0001f512" * 9)


@dataclass(frozen=True, slots=True)
class Question:
    """A line for the oracle, the lines that it depends on, and Penstock's answer."""

    line: str
    world: Sequence[str]
    answer: str


def draw_worlds(seed: int, count: int) -> Iterator[tuple[list[str], list[Question]]]:
    """The lines of each world, and its questions among them."""
    drawn = random.Random(seed)
    for _ in range(count):
        yield _draw_world(drawn)


def _draw_world(drawn: random.Random) -> tuple[list[str], list[Question]]:
    is_allowed_without_acls = drawn.random() < 0.3
    super_users = drawn.choice(SUPER_USERS)
    acls = list(dict.fromkeys(_draw_acl(drawn) for _ in range(drawn.randrange(ACLS_MAX))))
    index = AclIndex.of(acls)
    world = [
        _line("WORLD", str(is_allowed_without_acls).lower(), ";".join(map(str, super_users))),
        *map(_acl_line, acls),
    ]
    questions: list[Question] = []
    for number in range(QUESTIONS_PER_WORLD):
        principal, host = drawn.choice(PRINCIPALS), drawn.choice(HOSTS)
        resource_type, operation = drawn.choice(RESOURCE_TYPES), drawn.choice(ALLOWED[1:])
        asked = (str(principal), host, str(int(resource_type)))
        if number:
            name = drawn.choice(NAMES)
            line = _line("MAY", *asked, name, str(int(operation)))
            rights = index.rights_of(
                [principal], host, resource_type, name, is_allowed_without_acls=is_allowed_without_acls
            )
            is_allowed = bool(rights & bits(operation))
        else:
            line = _line("ANY", *asked, str(int(operation)))
            is_allowed = index.may_on_any(
                [principal], host, operation, resource_type, is_allowed_without_acls=is_allowed_without_acls
            )
        questions.append(Question(line, world, "1" if is_allowed or principal in super_users else "0"))
    return [*world, *(question.line for question in questions)], questions


def _draw_acl(drawn: random.Random) -> Acl:
    is_for_all_names = drawn.random() < 0.1
    return Acl(
        principal=drawn.choice([*PRINCIPALS, EVERY_USER]),
        host=drawn.choice(["*", "*", *HOSTS]),
        operation=drawn.choice(ALLOWED),
        permission=Permission.ALLOW if drawn.random() < 0.75 else Permission.DENY,
        resource_type=drawn.choice(RESOURCE_TYPES),
        name="*" if is_for_all_names else drawn.choice(NAMES),
        pattern=PatternType.PREFIXED if drawn.random() < 0.4 else PatternType.LITERAL,
    )


def _acl_line(acl: Acl) -> str:
    return _line(
        "ACL",
        str(int(acl.resource_type)),
        acl.name,
        str(int(acl.pattern)),
        str(acl.principal),
        acl.host,
        str(int(acl.operation)),
        str(int(acl.permission)),
    )


def draw_credentials(seed: int, count: int) -> Iterator[Question]:
    """Questions for the keys of passwords."""
    drawn = random.Random(seed)
    for _ in range(count):
        mechanism, password = drawn.choice(tuple(ScramMechanism)), drawn.choice(PASSWORDS)
        salt, iterations = drawn.randbytes(drawn.randrange(1, 40)), drawn.choice([4096, 4097])
        salted = salt_password(password, salt=salt, iterations=iterations, mechanism=mechanism)
        credential = credential_of(salted, salt=salt, iterations=iterations, mechanism=mechanism)
        keys = (salted, credential.stored_key, credential.server_key)
        line = _line("SCRAM", mechanism.sasl_name, password, salt.hex(), str(iterations))
        yield Question(line, (), " ".join(key.hex() for key in keys))


def _line(*fields: str) -> str:
    return "\t".join(fields)
