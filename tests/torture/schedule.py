"""Which faults come, in which order: deterministic from a seed.

Rule: every kind of fault comes once before any comes again. A slot holds one fault or two on different parts; they
begin together, and each ends when its own time is over.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tests.torture.link import LinkFault
from tests.torture.store_link import StoreFault

AGENTS = ("a", "b", "c")
LEASE_SECONDS = 10
"""An agent that etcd has not heard of for so long has lost its session."""
SLOTS_WITH_TWO_FAULTS = 0.25


class Act(Enum):
    """What is done to a process."""

    KILL = "kill -9"
    """And start it again when the fault's time is over."""
    STOP = "SIGTERM, start again"
    PAUSE = "SIGSTOP"
    """And SIGCONT when the time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `part`: `agent a`, `etcd one`, `etcd leader`, `etcd all`, `store`, or a link: `a-etcd`, `a-store`,
    `all-store`, `a-client`."""

    what: str
    part: str
    seconds: float
    act: Act | None = None
    link: LinkFault | None = None
    store: StoreFault | None = None
    store_part: float = 0.0
    """The probability of `store`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    faults: tuple[Fault, ...]


def process_faults(agent: str) -> list[Fault]:
    """Each process killed, paused beyond the lease, and stopped in good order."""
    rows = [
        (Act.KILL, f"agent {agent}", 4),
        (Act.PAUSE, f"agent {agent}", LEASE_SECONDS + 6),
        (Act.STOP, f"agent {agent}", 1),
        (Act.KILL, "etcd one", 8),
        (Act.KILL, "etcd leader", 8),
        (Act.PAUSE, "etcd leader", 10),
        (Act.KILL, "etcd all", 8),
        (Act.PAUSE, "etcd all", LEASE_SECONDS + 5),
        (Act.KILL, "store", 8),
        (Act.PAUSE, "store", 10),
        (Act.STOP, "store", 1),
    ]
    return [Fault(what=act.value, part=part, seconds=seconds, act=act) for act, part, seconds in rows]


def link_faults(link: str) -> list[Fault]:
    """What a network does to one link. A hole outlasts the lease."""
    rows = [
        ("slow", 10, LinkFault(kind="latency", ms=150, jitter_ms=250)),
        ("reset", 6, LinkFault(kind="reset")),
        ("cut in the answer", 8, LinkFault(kind="cut", bytes_max=20_000)),
        ("half-closed", 8, LinkFault(kind="half_close", bytes_max=20_000)),
        ("black hole", LEASE_SECONDS + 4, LinkFault(kind="hole")),
        ("black hole to it", LEASE_SECONDS + 4, LinkFault(kind="hole", directions=("to",))),
        ("black hole from it", LEASE_SECONDS + 4, LinkFault(kind="hole", directions=("from",))),
    ]
    return [Fault(what=what, part=link, seconds=seconds, link=fault) for what, seconds, fault in rows]


def store_faults(link: str) -> list[Fault]:
    """What an S3 answers on a bad day; `all-store` is a bad day for every agent."""
    rows = [
        (StoreFault.SLOW_DOWN, 0.7),
        (StoreFault.REFUSED_500, 0.5),
        (StoreFault.APPLIED_500, 0.7),
        (StoreFault.APPLIED_RESET, 0.7),
        (StoreFault.TRUNCATED_GET, 0.6),
        (StoreFault.SLOW_BODY, 0.6),
        (StoreFault.MISSING_FIRST, 0.8),
        (StoreFault.STALE_LIST, 1.0),
    ]
    return [Fault(what=kind.value, part=link, seconds=9, store=kind, store_part=part) for kind, part in rows]


def all_faults(chance: random.Random) -> list[Fault]:
    """Every kind of fault once, each of an agent's on an agent by chance, shuffled."""

    def agent() -> str:
        return chance.choice(AGENTS)

    faults = [row for place in range(len(process_faults("a"))) for row in [process_faults(agent())[place]]]
    for link in ("etcd", "store", "client"):
        faults += [link_faults(f"{agent()}-{link}")[place] for place in range(len(link_faults("")))]
    faults += [
        store_faults(f"{chance.choice((*AGENTS, 'all'))}-store")[place] for place in range(len(store_faults("")))
    ]
    chance.shuffle(faults)
    return faults


def schedule(seed: int, *, has_pairs: bool = True) -> Iterator[Slot]:
    """Slots without end."""
    chance = random.Random(seed)
    while True:
        waiting = all_faults(chance)
        while waiting:
            first = waiting.pop()
            others = [fault for fault in waiting if not _overlap(first, fault)]
            if has_pairs and others and chance.random() < SLOTS_WITH_TWO_FAULTS:
                second = chance.choice(others)
                waiting.remove(second)
                yield Slot(faults=(first, second))
            else:
                yield Slot(faults=(first,))


def chosen(names: Sequence[tuple[str, str]]) -> Iterator[Slot]:
    """One slot for each (what, part), in this order: a run that is the same every time."""
    agent = {name: name for name in AGENTS}
    found = [
        fault
        for name in agent
        for fault in (
            *process_faults(name),
            *(row for link in ("etcd", "store", "client") for row in link_faults(f"{name}-{link}")),
            *store_faults(f"{name}-store"),
        )
    ] + store_faults("all-store")
    by_name = {(fault.what, fault.part): fault for fault in found}
    return (Slot(faults=(by_name[name],)) for name in names)


def _overlap(first: Fault, second: Fault) -> bool:
    """Whether two faults are on one part: then the end of one would end the other."""

    def group(fault: Fault) -> str:
        if fault.store is not None:
            return "answers of the store"
        return fault.part.split(" ")[0] if fault.act is not None and "agent" not in fault.part else fault.part

    return group(first) == group(second)
