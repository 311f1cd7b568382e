"""Delegation tokens (KIP-48): the four APIs, and logins with tokens.

Every case makes users of its own, who log in by SCRAM, each on the connection of its name. The broker's administrator
prepares, and asks on the connection `ADMINISTRATOR`. A broker of Kafka knows late of what its controller was told, so
steps wait for that.
"""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from protocol.auth.scram_credentials import ScramMechanism
from tests.compat.protocol_diff.engine import ADMINISTRATOR
from tests.compat.protocol_diff.steps import Cases, G, Lazy, Step, V
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.clients.login_client import plain_token

CASES = Cases()

PASSWORD: Final = "password"
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
MECHANISMS: Final = {SHA_256: ScramMechanism.SCRAM_SHA_256, SHA_512: ScramMechanism.SCRAM_SHA_512}
SALT, ITERATIONS = b"salt", 4096
SALTED: Final = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), SALT, ITERATIONS)
TOKEN_AUTH: Final = ",tokenauth=true"
HOUR_MS: Final = 3_600_000
DAYS_100_MS: Final = 100 * 24 * HOUR_MS
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
KNOWN_SECONDS: Final = 0.3
"""More than a broker of Kafka takes to know of a user or of a token's end."""
USER_RESOURCE, TOKEN_RESOURCE = 7, 6
DESCRIBE, CREATE_TOKENS, DESCRIBE_TOKENS = 8, 13, 14
Principal = tuple[str | None, Any]
"""Type and name."""


# Users, rights and logins


def users(*names: str) -> list[Step]:
    """Makes users, and logs each in on the connection of its name."""
    made = [
        {"Name": G(name), "Mechanism": 1, "Iterations": ITERATIONS, "Salt": SALT, "SaltedPassword": SALTED}
        for name in names
    ]
    described = {"Users": [{"Name": G(name)} for name in names]}
    known = (f"Results.{len(names) - 1}.CredentialInfos.0.Mechanism", 1)
    return [
        Step("AlterUserScramCredentials", 0, {"Deletions": [], "Upsertions": made}, quiet=True),
        Step("DescribeUserScramCredentials", 0, described, quiet=True, until=known),
        *(step for name in names for step in log_in(name, user=G(name), password=PASSWORD, quiet=True)),
    ]


def log_in(
    conn: str,
    *,
    user: Any,
    password: Any,
    mechanism: str = SHA_256,
    extensions: str = "",
    authorized: Any = "",
    quiet: bool = False,
) -> list[Step]:
    """A login by SCRAM on a connection of its own. A password in bytes is a token's HMAC."""
    named: tuple[tuple[str, Any], ...] = (
        ("mechanism", mechanism),
        ("user", user),
        ("password", password),
        ("extensions", extensions),
        ("authorized", authorized),
    )
    challenge = f"challenge of {conn}"
    last = (*named, ("challenge", V(challenge)))
    step = Step("SaslAuthenticate", 2, {}, conn=conn, mask=("AuthBytes",), quiet=quiet)
    return [
        replace(handshake(mechanism, conn), quiet=quiet, pause=KNOWN_SECONDS),
        replace(step, body={"AuthBytes": Lazy(first_message, named)}, save={challenge: "AuthBytes"}),
        replace(step, body={"AuthBytes": Lazy(last_message, last)}),
    ]


def handshake(mechanism: str, conn: str) -> Step:
    """The order of the mechanisms does not count."""
    return Step("SaslHandshake", 1, {"Mechanism": mechanism}, conn=conn, mask=("Mechanisms",))


def log_in_by(token: str, conn: str = "by token", mechanism: str = SHA_256, **changed: Any) -> list[Step]:
    """A login with a token."""
    shown = {"user": V(f"id {token}"), "password": V(f"hmac {token}"), "extensions": TOKEN_AUTH, **changed}
    return log_in(conn, mechanism=mechanism, **shown)


def first_message(**arguments: Any) -> bytes:
    return _scram_client(**arguments).first()


def last_message(*, challenge: bytes, **arguments: Any) -> bytes:
    """No message where the broker gave no challenge."""
    return _scram_client(**arguments).final(challenge) if challenge else b""


def _scram_client(
    *, mechanism: str, user: str, password: str | bytes, extensions: str, authorized: str
) -> DrawnScramClient:
    return DrawnScramClient(
        mechanism=MECHANISMS[mechanism],
        user=user,
        password=password if isinstance(password, str) else b64encode(password).decode(),
        gs2_header=f"n,a={authorized}," if authorized else "n,,",
        extensions=extensions,
    )


def plain_message(*, user: str, hmac: bytes) -> bytes:
    return plain_token(user, b64encode(hmac).decode())


def name_of_user(*, name: str) -> str:
    """A user as the name of a resource."""
    return f"User:{name}"


def user_resource(name: str) -> Lazy:
    return Lazy(name_of_user, (("name", G(name)),))


def allow(name: str, operation: int, resource_type: int, resource: Any) -> Step:
    """Gives a user a right on one resource."""
    acl = {
        "ResourceType": resource_type, "ResourceName": resource, "ResourcePatternType": 3,
        "Principal": user_resource(name), "Host": "*", "Operation": operation, "PermissionType": 3,
    }  # fmt: skip
    return Step("CreateAcls", 3, {"Creations": [acl]}, quiet=True)


# The four APIs


def create(
    conn: str,
    token: str = "t",
    *,
    lifetime_ms: int = -1,
    renewers: Sequence[Principal] = (),
    owner: Principal = (None, None),
    version: int = 3,
    **changed: Any,
) -> Step:
    """Keeps the token's id and HMAC as `id TOKEN` and `hmac TOKEN`."""
    body = {
        "OwnerPrincipalType": owner[0],
        "OwnerPrincipalName": owner[1],
        "Renewers": _principals(renewers),
        "MaxLifetimeMs": lifetime_ms,
    }
    saved = {f"id {token}": "TokenId", f"hmac {token}": "Hmac"}
    return Step("CreateDelegationToken", version, body, conn=conn, save=saved, **changed)


def renew(
    conn: str, period_ms: int = HOUR_MS, hmac: Any = V("hmac t"), *, version: int = 2, pause: float = 0.0
) -> Step:
    return Step("RenewDelegationToken", version, {"Hmac": hmac, "RenewPeriodMs": period_ms}, conn=conn, pause=pause)


def expire(conn: str, period_ms: int = -1, hmac: Any = V("hmac t"), *, version: int = 2, pause: float = 0.0) -> Step:
    body = {"Hmac": hmac, "ExpiryTimePeriodMs": period_ms}
    return Step("ExpireDelegationToken", version, body, conn=conn, pause=pause)


def describe(conn: str, owners: Sequence[Principal] | None = None, *, version: int = 3, **changed: Any) -> Step:
    asked = None if owners is None else _principals(owners)
    return Step("DescribeDelegationToken", version, {"Owners": asked}, conn=conn, **changed)


def until_known(conn: str, token: str = "t") -> Step:
    """Describes the only token of a user once its broker knows it."""
    return describe(conn, until=("Tokens.0.TokenId", V(f"id {token}")))


def until_none(conn: str) -> Step:
    """Describes a user's tokens once there are none."""
    return describe(conn, until=("Tokens", []))


def _principals(principals: Sequence[Principal]) -> list[dict[str, Any]]:
    return [{"PrincipalType": kind, "PrincipalName": name} for kind, name in principals]


ALICE: Final[Principal] = ("User", G("alice"))
BOB: Final[Principal] = ("User", G("bob"))
CAROL: Final[Principal] = ("User", G("carol"))


# CreateDelegationToken

CASES.add("tokens.create", users("alice"), [create("alice", version=version) for version in (1, 2, 3)])
for name, lifetime_ms in {
    "zero": 0,
    "below-zero": -2,
    "least": INT64_MIN,
    "short": 10 * HOUR_MS,
    "beyond-renewal": 30 * HOUR_MS,
    "beyond-most": DAYS_100_MS,
    "largest": INT64_MAX,
}.items():
    CASES.add(f"tokens.lifetime-{name}", users("alice"), create("alice", lifetime_ms=lifetime_ms))
CASES.add("tokens.renewers", users("alice", "bob"), create("alice", renewers=[CAROL, BOB]), until_known("alice"))
CASES.add("tokens.renewer-twice", users("alice"), create("alice", renewers=[BOB, BOB]), until_known("alice"))
CASES.add("tokens.renewer-is-owner", users("alice"), create("alice", renewers=[ALICE]), until_known("alice"))
CASES.add("tokens.renewer-group", users("alice"), create("alice", renewers=[BOB, ("Group", G("g"))]))
CASES.add("tokens.renewer-type-lower-case", users("alice"), create("alice", renewers=[("user", G("bob"))]))
CASES.add("tokens.renewer-empty-type", users("alice"), create("alice", renewers=[("", G("bob"))]))
CASES.add("tokens.renewer-empty-name", users("alice"), create("alice", renewers=[("User", "")]))
CASES.add(
    "tokens.owner-empty",
    users("alice"),
    create("alice", owner=("", "")),
    create("alice", owner=("User", "")),
    create("alice", owner=("Group", None)),
)
CASES.add("tokens.owner-self", users("alice"), create("alice", owner=ALICE))
CASES.add("tokens.for-another-denied", users("alice"), create("alice", owner=BOB, renewers=[("Group", "g")]))
CASES.add(
    "tokens.for-another",
    users("alice", "bob"),
    allow("alice", CREATE_TOKENS, USER_RESOURCE, user_resource("bob")),
    create("alice", owner=BOB, until=("ErrorCode", 0)),
    until_known("bob"),
    [describe("bob", version=version) for version in (1, 2)],
    [describe("alice", owners) for owners in (None, [ALICE], [BOB])],
    renew("alice"),
    expire("alice"),
    renew("bob"),
    create("alice", owner=CAROL),
)
CASES.add("tokens.owner-without-credential", create(ADMINISTRATOR, owner=("User", G("nobody"))))
CASES.add("tokens.owner-group", create(ADMINISTRATOR, owner=("Group", G("g"))))
CASES.add("tokens.owner-group-denied", users("alice"), create("alice", owner=("Group", G("g"))))

# RenewDelegationToken

CASES.add(
    "tokens.renew",
    users("alice", "bob"),
    create("alice", renewers=[BOB]),
    [renew("alice", period) for period in (-1, 0, HOUR_MS, DAYS_100_MS, INT64_MAX, INT64_MIN)],
    renew("bob", 2 * HOUR_MS),
    renew("alice", 3 * HOUR_MS, version=1),
)
CASES.add("tokens.renew-most", users("alice"), create("alice", lifetime_ms=HOUR_MS), renew("alice", 2 * HOUR_MS))
CASES.add(
    "tokens.renew-foreign",
    users("alice", "bob"),
    create("alice", renewers=[CAROL]),
    renew("bob"),
    renew(ADMINISTRATOR),
    renew("bob", -1, version=1),
)
for name, hmac in {"empty": b"", "short": b"x", "zeros": bytes(64)}.items():
    CASES.add(
        f"tokens.hmac-{name}",
        users("alice"),
        create("alice", quiet=True),
        renew("alice", hmac=hmac),
        expire("alice", hmac=hmac),
        expire("alice", HOUR_MS, hmac=hmac),
    )
CASES.add("tokens.hmac-is-id", users("alice"), create("alice"), renew("alice", hmac=b"id"))
CASES.add(
    "tokens.renew-ended",
    users("alice", "bob"),
    create("alice"),
    expire("alice", 0),
    renew("alice", pause=KNOWN_SECONDS),
    renew("bob"),
    renew("alice", version=1),
)
CASES.add(
    "tokens.renew-of-full-age",
    users("alice"),
    create("alice", lifetime_ms=1),
    renew("alice", pause=KNOWN_SECONDS),
    expire("alice", HOUR_MS),
)

# ExpireDelegationToken

CASES.add(
    "tokens.expire",
    users("alice", "bob"),
    create("alice", renewers=[BOB]),
    [expire("alice", period) for period in (HOUR_MS, DAYS_100_MS)],
    expire("bob", 2 * HOUR_MS),
    expire("alice", 3 * HOUR_MS, version=1),
    renew("alice"),
)
CASES.add("tokens.expire-largest", users("alice"), create("alice"), expire("alice", INT64_MAX))
CASES.add(
    "tokens.remove",
    users("alice"),
    create("alice"),
    until_known("alice"),
    expire("alice"),
    until_none("alice"),
    renew("alice"),
    expire("alice"),
    expire("alice", HOUR_MS),
)
for name, period_ms in {"by-another-period": -5, "by-least-period": INT64_MIN}.items():
    CASES.add(f"tokens.remove-{name}", users("alice"), create("alice"), expire("alice", period_ms), renew("alice"))
CASES.add("tokens.remove-v1", users("alice"), create("alice"), expire("alice", version=1), renew("alice", version=1))
CASES.add(
    "tokens.remove-by-renewer",
    users("alice", "bob"),
    create("alice", renewers=[BOB]),
    expire("bob"),
    expire("alice"),
)
CASES.add(
    "tokens.expire-foreign",
    users("alice", "bob"),
    create("alice"),
    expire("bob"),
    expire("bob", HOUR_MS),
    expire(ADMINISTRATOR),
    renew("alice"),
)
CASES.add(
    "tokens.expire-ended",
    users("alice", "bob"),
    create("alice"),
    expire("alice", 0),
    expire("alice", HOUR_MS, pause=KNOWN_SECONDS),
    expire("alice", 0),
    expire("bob", HOUR_MS),
    expire("bob"),
    expire("alice"),
    expire("alice"),
)

# DescribeDelegationToken

CASES.add(
    "tokens.describe",
    users("alice", "bob"),
    create("alice", renewers=[BOB]),
    until_known("alice"),
    [describe("alice", version=version) for version in (1, 2)],
    [describe("alice", owners) for owners in ([], [ALICE], [BOB], [CAROL], [ALICE, ALICE], [ALICE, BOB, CAROL])],
    describe("alice", [("Group", G("alice"))]),
    describe("alice", [("", "")]),
    [describe("bob", owners) for owners in (None, [BOB], [ALICE])],
)
CASES.add(
    "tokens.describe-several",
    users("alice"),
    create("alice", "1", lifetime_ms=HOUR_MS),
    create("alice", "2", lifetime_ms=2 * HOUR_MS),
    describe("alice", until=("Tokens.1.PrincipalType", "User")),
    describe("alice", [ALICE]),
)
CASES.add(
    "tokens.describe-foreign",
    users("alice", "bob"),
    create("alice"),
    until_known("alice"),
    describe("bob"),
    describe("bob", [ALICE]),
)
CASES.add("tokens.describe-none", users("alice"), [describe("alice", version=version) for version in (1, 2, 3)])
CASES.add(
    "tokens.describe-by-right-on-owner",
    users("alice", "bob"),
    create("alice"),
    until_known("alice"),
    allow("bob", DESCRIBE_TOKENS, USER_RESOURCE, user_resource("alice")),
    until_known("bob"),
    describe("bob", [ALICE]),
    describe("bob", [BOB]),
    renew("bob"),
)
CASES.add(
    "tokens.describe-by-right-on-token",
    users("alice", "bob"),
    create("alice", "1"),
    create("alice", "2"),
    allow("bob", DESCRIBE, TOKEN_RESOURCE, V("id 1")),
    until_known("bob", "1"),
    describe("bob", [ALICE]),
    expire("bob", hmac=V("hmac 1")),
)
CASES.add(
    "tokens.describe-by-administrator",
    users("alice"),
    create("alice"),
    until_known("alice"),
    describe("administrator", [ALICE]),
)
CASES.add(
    "tokens.describe-ended",
    users("alice"),
    create("alice"),
    until_known("alice"),
    expire("alice", 0),
    describe("alice", pause=2 * KNOWN_SECONDS),
)

# Logins with tokens

LIST_GROUPS: Final = Step("ListGroups", 4, {"StatesFilter": []}, conn="by token", pause=KNOWN_SECONDS, mask=("Groups",))


def token_of_alice(*names: str, **changed: Any) -> list[Step]:
    """Makes users, and a token of alice, for whom the administrator asks."""
    return [
        *users(*(names or ("alice",))),
        create(ADMINISTRATOR, owner=ALICE, quiet=True, **changed),
        describe(ADMINISTRATOR, [ALICE], until=("Tokens.0.TokenId", V("id t")), quiet=True),
    ]


for mechanism in MECHANISMS:
    CASES.add(
        f"tokens.login-{mechanism[-3:]}",
        token_of_alice(),
        log_in_by("t", mechanism=mechanism),
        LIST_GROUPS,
        create("by token"),
        create("by token", owner=BOB),
        create("by token", renewers=[("Group", "g")]),
        renew("by token"),
        expire("by token"),
        describe("by token"),
        describe("by token", []),
        [each("by token", version=1) for each in (create, renew, expire, describe)],
        renew("alice"),
    )
CASES.add("tokens.login-until-it-ends", token_of_alice(lifetime_ms=2 * HOUR_MS), log_in_by("t"), LIST_GROUPS)
CASES.add(
    "tokens.login-by-token-for-another",
    users("alice", "bob"),
    create(ADMINISTRATOR, owner=ALICE),
    until_known("alice"),
    log_in_by("t"),
    LIST_GROUPS,
)
WRONG: Final[dict[str, dict[str, Any]]] = {
    "wrong-hmac": {"password": bytes(64)},
    "no-hmac": {"password": ""},
    "unknown-id": {"user": "A" * 22},
    "owner-and-hmac": {"user": G("alice")},
    "owner-and-password": {"user": G("alice"), "password": PASSWORD},
    "no-tokenauth": {"extensions": ""},
    "tokenauth-false": {"extensions": ",tokenauth=false"},
    "for-owner": {"authorized": G("alice")},
}
for name, changed in WRONG.items():
    CASES.add(f"tokens.login-{name}", token_of_alice(), log_in_by("t", **changed), LIST_GROUPS)
CASES.add(
    "tokens.login-tokenauth-upper-case", token_of_alice(), log_in_by("t", extensions=",tokenauth=TRUE"), LIST_GROUPS
)
CASES.add("tokens.login-for-itself", token_of_alice(), log_in_by("t", authorized=V("id t")), LIST_GROUPS)
CASES.add("tokens.login-removed", token_of_alice(), expire("alice"), until_none("alice"), log_in_by("t"), LIST_GROUPS)
CASES.add("tokens.login-ended", token_of_alice(), expire("alice", 0), log_in_by("t"), LIST_GROUPS)
CASES.add("tokens.login-of-full-age", token_of_alice(lifetime_ms=1), log_in_by("t"), LIST_GROUPS)
CASES.add(
    "tokens.login-of-deleted-owner",
    token_of_alice(),
    Step("AlterUserScramCredentials", 0, {"Deletions": [{"Name": G("alice"), "Mechanism": 1}]}, quiet=True),
    log_in_by("t"),
    LIST_GROUPS,
)
CASES.add(
    "tokens.login-by-plain",
    token_of_alice(),
    handshake("PLAIN", "by token"),
    Step(
        "SaslAuthenticate",
        2,
        {"AuthBytes": Lazy(plain_message, (("user", V("id t")), ("hmac", V("hmac t"))))},
        conn="by token",
    ),
    LIST_GROUPS,
)
