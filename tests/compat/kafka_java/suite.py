"""Runs the conversations with Kafka's Java tools, one after the other.

Rule: a conversation that fails says at what; the tools' whole output is in the run's folder.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.compat.kafka_java import command_line, groups, streams, transactions, verifiable
from tests.compat.kafka_java.bench import LOGGING, Bench
from tests.compat.outcomes import Outcome, State
from tests.compat.suites import Part, Suite
from tests.compat.target import Target, provided_java
from tests.support.services.java import KAFKA_LOGGING

CONVERSATIONS: dict[str, Callable[[Bench], None]] = {
    **command_line.CONVERSATIONS,
    **groups.CONVERSATIONS,
    **verifiable.CONVERSATIONS,
    **transactions.CONVERSATIONS,
    **streams.CONVERSATIONS,
}


def run_conversations(target: Target, folder: Path, only: str) -> Iterator[Outcome]:
    """Runs the conversations whose names begin with one of the words in `only`."""
    java = provided_java()
    folder.mkdir(parents=True)
    (folder / LOGGING).write_text(KAFKA_LOGGING, encoding="utf-8")
    for name, conversation in CONVERSATIONS.items():
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
    parts=(Part(run=run_conversations, has_racks=True),),
)
