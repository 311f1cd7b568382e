"""Runs the conversations with Kafka's Java tools, one after the other.

Rule: a conversation that fails says at what; the tools' whole output is in the run's folder.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.compat.access import ADMIN, SASL_SSL
from tests.compat.kafka_java import command_line, groups, rights, streams, transactions, users, verifiable
from tests.compat.kafka_java.bench import LOGGING, Bench
from tests.compat.outcomes import Outcome, State
from tests.compat.suites import Part, Suite
from tests.compat.target import Target, provided_java
from tests.support.services.java import KAFKA_LOGGING

NOT_SECURED = ("verify.share", "verify.compatibility")
"""Share groups are not served, and the test of compatibility takes no properties of a client."""
SECURED_SETTINGS = {
    "allow.everyone.if.no.acl.found": "false",
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    "quota.window.num": "3",
}
"""ANONYMOUS are the fellow brokers of Apache Kafka, by a listener of their own."""
OF_GROUPS = "cli.groups,verify.classic,verify.consumer,verify.cooperative,verify.static,txn.,streams."
CONVERSATIONS: dict[str, Callable[[Bench], None]] = {
    **command_line.CONVERSATIONS,
    **groups.CONVERSATIONS,
    **verifiable.CONVERSATIONS,
    **transactions.CONVERSATIONS,
    **streams.CONVERSATIONS,
}
SECURED: dict[str, Callable[[Bench], None]] = {
    **rights.CONVERSATIONS,
    **users.CONVERSATIONS,
    **command_line.CONVERSATIONS,
    **groups.CONVERSATIONS,
    **{name: verifiable.CONVERSATIONS[name] for name in verifiable.CONVERSATIONS if name not in NOT_SECURED},
    **{name: transactions.CONVERSATIONS[name] for name in ("txn.performance", "txn.command", "txn.abort-hanging")},
}


def run_conversations(
    conversations: Mapping[str, Callable[[Bench], None]], target: Target, folder: Path, only: str
) -> Iterator[Outcome]:
    """Runs the conversations whose names begin with one of the words in `only`."""
    java = provided_java()
    folder.mkdir(parents=True)
    (folder / LOGGING).write_text(KAFKA_LOGGING, encoding="utf-8")
    for name, conversation in conversations.items():
        if not name.startswith(tuple(only.split(","))):
            continue
        began_s = time.monotonic()
        state, note = State.PASSED, ""
        with ExitStack() as stack:
            bench = Bench(target=target, java=java, folder=folder, conversation=name, stack=stack)
            try:
                conversation(bench)
            except (AssertionError, LookupError, ValueError) as failure:
                state, note = State.FAILED, f"{type(failure).__name__}: {failure}"
        yield Outcome(name=name, state=state, seconds=time.monotonic() - began_s, note=note)


KAFKA_JAVA = Suite(
    name="kafka_java",
    title="Kafka's Java tools and verifiable clients",
    version="4.3.1",
    folder=Path(__file__).parent,
    of_groups=OF_GROUPS,
    parts=(Part(run=partial(run_conversations, CONVERSATIONS), has_racks=True),),
)
KAFKA_JAVA_SECURED = Suite(
    name="kafka_java_secured",
    title="Kafka's Java tools over SASL_SSL, and those about users, ACLs and quotas",
    version="4.3.1",
    folder=Path(__file__).parent / "secured",
    of_groups=OF_GROUPS,
    parts=(Part(run=partial(run_conversations, SECURED), protocol=SASL_SSL, settings=SECURED_SETTINGS),),
)
