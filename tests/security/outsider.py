"""python -m tests.security.outsider: one of two tenants tries everything to reach the other's, and gets nothing.

Starts MinIO and an agent with the audit topic. Both tenants have a user, a token, and all rights on names with their
own prefix. The attacker then asks every Kafka API and every path of the HTTP port for what is the victim's, uses its
vended keys on the victim's objects, and compares the times of what is hidden with those of what is not there. Each try
that a right stopped must be in the audit topic, one by one. Prints a table of the tries; 1 where one got through.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.security.required_rights import Right
from protocol.auth.operations import Operation, PatternType, ResourceType
from protocol.auth.scram_credentials import ScramMechanism
from tests.security.guarded_agent import GUARDED_TYPES, acl_row, create_topic, grant
from tests.security.outsider_audit import DeniedEvents, denied_events
from tests.security.outsider_tries import Try, TryResult, all_tries
from tests.security.tenant import ADMIN, ATTACKER, SECRET, VICTIM, Tenants, prepare_tenant, token_of
from tests.support.auth.plain_users import plain_user
from tests.support.clients.login_client import LoginClient
from tests.support.lake.archiving import AT_ONCE, archive_by_http
from tests.support.processes import provided
from tests.support.services.local_services import PENSTOCK, MinioProcess, PenstockFactory

NAMED_TYPES: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
BUCKET: Final = "tenants"
PREFIX: Final = "a/prefix"


@contextmanager
def two_tenants(folder: Path) -> Iterator[Tenants]:
    """Starts the store and the agent, with topics, groups, transactions, tables and schemas of both tenants."""
    provided(PENSTOCK)
    users = (ADMIN, VICTIM, ATTACKER)
    lines = [plain_user(user, f"password-of-{user}", ScramMechanism.SCRAM_SHA_256) for user in users]
    (folder / "users").write_text("\n".join(lines) + "\n")
    (folder / "tokens").write_text("".join(f"User:{user} {token_of(user)}\n" for user in users))
    (folder / "key").write_bytes(bytes(range(32)))
    with ExitStack() as stack:
        minio = MinioProcess(folder / "minio")
        minio.wait(stack.enter_context(minio.start()))
        broker = PenstockFactory(folder=folder, stack=stack)(
            listen="SASL_PLAINTEXT://127.0.0.1:0",
            options={
                **AT_ONCE,
                "plain-users": str(folder / "users"),
                "http-token-file": str(folder / "tokens"),
                "audit-log": "topic",
                "catalog-vended-credentials": "sts",
                "log-level": "warning",
            },
            settings={
                "sasl.enabled.mechanisms": "PLAIN",
                "super.users": f"User:{ADMIN}",
                "penstock.secret.key.file": str(folder / "key"),
            },
            store=f"s3://{minio.server.make_bucket(BUCKET)}/{PREFIX}",
            env=minio.server.settings,
        )
        admin = stack.enter_context(LoginClient(broker.bootstrap))
        assert admin.log_in(ADMIN, f"password-of-{ADMIN}").error_code == 0
        for user in (VICTIM, ATTACKER):
            kinds = [kind for kind in GUARDED_TYPES if kind in NAMED_TYPES]
            rights = [Right(Operation.ALL, kind) for kind in kinds]
            grant(admin, [acl_row(user, right, f"{user}.", pattern=PatternType.PREFIXED) for right in rights])
            create_topic(admin, f"{user}.topic")
            subjects = acl_row(user, rights[0], f"schema:{user}.", pattern=PatternType.PREFIXED)
            grant(admin, [subjects])
        victim = stack.enter_context(LoginClient(broker.bootstrap))
        attacker = stack.enter_context(LoginClient(broker.bootstrap))
        assert victim.log_in(VICTIM, f"password-of-{VICTIM}").error_code == 0
        assert attacker.log_in(ATTACKER, f"password-of-{ATTACKER}").error_code == 0
        clients = ((VICTIM, victim), (ATTACKER, attacker))
        prepared = {user: prepare_tenant(client, broker, user) for user, client in clients}
        for user in (VICTIM, ATTACKER):
            archive_by_http(broker, f"{user}.topic", token_of(ADMIN))
        tenants = Tenants(
            broker=broker,
            minio=minio.server,
            admin=admin,
            victim=victim,
            attacker=attacker,
            names={user: names for user, (names, _) in prepared.items()},
            schemas={user: schema for user, (_, schema) in prepared.items()},
            bucket=BUCKET,
            prefix=PREFIX,
        )
        tenants.produce_to_intake()
        yield tenants


@dataclass(slots=True)
class Report:
    """What became of the tries."""

    rows: list[tuple[Try, TryResult, str]] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        through = [f"{each.label}: {result.text}" for each, result, _ in self.rows if not result.is_stopped]
        silent = [f"{each.label}: no event" for each, _, audited in self.rows if audited == "missing"]
        return [*through, *silent]

    def table(self) -> str:
        width = max(len(each.label) for each, _, _ in self.rows)
        lines = [f"{each.label:{width}}  {result.text:44}  {audited}" for each, result, audited in self.rows]
        return "\n".join([f"{'try':{width}}  {'answer':44}  audit topic", *lines])

    def summary(self) -> str:
        stopped = sum(result.is_stopped for _, result, _ in self.rows)
        audited = sum(audited == "there" for _, _, audited in self.rows)
        expected = sum(each.event is not None for each, _, _ in self.rows)
        return f"{len(self.rows)} tries, {stopped} stopped; {audited} of {expected} denials are in the audit topic"


def play(folder: Path) -> Report:
    """Makes all tries, and looks each up in the audit topic."""
    report = Report()
    with two_tenants(folder) as tenants:
        tried = [(each, each.run(tenants)) for each in all_tries(tenants)]
        events: DeniedEvents = denied_events(tenants, sum(each.event is not None for each, _ in tried))
        for each, result in tried:
            report.rows.append((each, result, events.take(each)))
        for text in (tenants.broker.process.stderr, tenants.broker.process.stdout):
            assert SECRET not in text, "the agent's log has a record"
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brief", action="store_true", help="the summary alone")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-outsider-") as folder:
        report = play(Path(folder))
    if not asked.brief:
        print(report.table())
    print(report.summary())
    print("\n".join(report.problems) or "nothing got through")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
