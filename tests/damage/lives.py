"""What happens to damaged folders: one life of an agent over many damages, or a life for each, and what went wrong.

Rule: what must hold, whatever is damaged (safety rule S20): the process does not end, but for a damaged ledger, or it
refuses to start with a text for people; a consumer gets the right bytes, or an error; topics whose objects are whole
are served, archived and shown; an audit names what is damaged.
"""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.damage import world
from tests.damage.damages import (
    OF_CLUSTERS,
    OF_TOPICS,
    WITHOUT_JOURNAL,
    Damage,
    Kind,
    Mode,
    Target,
    cut,
    flip,
    in_order,
    remove,
    rename,
    swap,
    swap_parts,
    targets_of_cluster,
    targets_of_topic,
)
from tests.damage.table_rows import fault_of_table
from tests.damage.world import LiveAgent, Read
from tests.support.clients.raw_client import connected

WHOLE = ("whole-archived", "whole-waiting")
"""Topics of which nothing is damaged."""
MAY_END = frozenset({Kind.JOURNAL, Kind.LEDGER, Kind.LOG, Kind.SNAPSHOT, Kind.ETCD})
"""`LedgerCorrupt` ends an agent: what it serves would be wrong."""
MAY_REFUSE = MAY_END | {Kind.IDENTITY}
"""An agent may refuse to start over these, with a text that says what to do."""
AUDITED = {
    **dict.fromkeys((Kind.PARQUET, Kind.FOOTER), frozenset(Mode)),
    **dict.fromkeys((Kind.METADATA, Kind.MANIFEST_LIST, Kind.MANIFEST), frozenset(Mode)),
    **dict.fromkeys((Kind.JOURNALED, Kind.INTAKE), frozenset({Mode.FLIP, Mode.SWAP})),
    **dict.fromkeys((Kind.JOURNAL_HEADER, Kind.PACK_HEADER), frozenset({Mode.SWAP})),
    Kind.SNAPSHOT: frozenset({Mode.FLIP, Mode.CUT, Mode.SWAP}),
    Kind.PACK: frozenset({Mode.RENAME}),
}
"""What an audit has to name. Copies and hints are written again by the agent, and so are many of a cluster's objects; a
flip in the name of a checksum in a table's metadata changes nothing that is read."""
LIVES_AT_ONCE = 2
BACKGROUND_POLLS = 30
_OTHERS = (Mode.CUT, Mode.REMOVAL, Mode.SWAP)
_WAITING = frozenset({Kind.JOURNALED, Kind.JOURNAL_HEADER, Kind.INTAKE, Kind.PACK_HEADER})


@dataclass(slots=True, kw_only=True)
class Tally:
    """Of a whole run."""

    tried: Counter[tuple[Kind, Mode]] = field(default_factory=Counter[tuple[Kind, Mode]])
    failures: list[tuple[Kind, Mode, str]] = field(default_factory=list[tuple[Kind, Mode, str]])
    unnamed: Counter[tuple[Kind, Mode]] = field(default_factory=Counter[tuple[Kind, Mode]])
    """Damages that the audit did not name, where it need not."""
    refused: Counter[tuple[Kind, Mode]] = field(default_factory=Counter[tuple[Kind, Mode]])
    """Lives in which the agent did not start, and said why."""

    def fail(self, damages: Iterable[Damage], what: str) -> None:
        for damage in damages:
            self.failures.append((damage.target.kind, damage.mode, f"{damage}: {what}"))

    def add(self, other: "Tally") -> None:
        self.tried += other.tried
        self.unnamed += other.unnamed
        self.refused += other.refused
        self.failures += other.failures

    def as_text(self) -> str:
        failed = Counter((kind, mode) for kind, mode, _ in self.failures)
        lines = [f"{'kind':34}{'mode':12}{'tried':>7}{'failed':>8}{'refused':>9}{'not audited':>13}"]
        for (kind, mode), count in sorted(self.tried.items()):
            at = (kind, mode)
            lines.append(f"{kind:34}{mode:12}{count:>7}{failed[at]:>8}{self.refused[at]:>9}{self.unnamed[at]:>13}")
        return "\n".join([*lines, *(what for _, _, what in self.failures)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many of each kind: flips, and of truncations, removals and swaps each."""

    flips: int
    others: int
    is_in_turn: bool = False
    """Whether each kind that takes a life for each damage has one of the other modes, in turn, and not all of them."""
    is_running: bool = False
    """Whether topics are damaged under an agent that has read them, and not before it starts."""

    def modes(self) -> list[Mode]:
        """One for each topic of a kind; a swap takes two."""
        return [
            *[Mode.FLIP] * self.flips,
            *[mode for mode in (Mode.CUT, Mode.REMOVAL, Mode.SWAP, Mode.SWAP) for _ in range(self.others)],
        ]

    def topics(self, kind: Kind) -> list[str]:
        return [f"{kind.name.lower().replace('_', '-')}.{number}" for number in range(len(self.modes()))]


def build(data: Path, folder: Path, plan: Plan, kinds: Collection[Kind]) -> None:
    """The folder that is damaged: a topic for each damage of `OF_TOPICS`, and those that stay whole."""
    archived = [topic for kind in _of_topics(kinds) if kind not in _WAITING for topic in plan.topics(kind)]
    waiting = [topic for kind in _of_topics(kinds) if kind in _WAITING for topic in plan.topics(kind)]
    has_journal = WITHOUT_JOURNAL.isdisjoint(kinds)
    world.build(data, folder, archived=[*archived, WHOLE[0]], waiting=[*waiting, WHOLE[1]], has_journal=has_journal)


def _of_topics(kinds: Collection[Kind]) -> list[Kind]:
    return [kind for kind in OF_TOPICS if kind in kinds]


def damage_topics(data: Path, plan: Plan, kinds: Collection[Kind], random_: random.Random) -> list[Damage]:
    """Damage an object of each topic."""
    done: list[Damage] = []
    for kind in _of_topics(kinds):
        targets = [targets_of_topic(data, kind, topic, world.marker(topic)) for topic in plan.topics(kind)]
        swapped: Target | None = None
        for mode, target in zip(plan.modes(), targets, strict=True):
            match mode:
                case Mode.FLIP:
                    done.append(flip(data, target, random_))
                case Mode.CUT if kind not in _WAITING:
                    done.append(cut(data, target, random_))
                case Mode.REMOVAL if kind not in _WAITING:
                    done.append(remove(data, target))
                case Mode.SWAP:
                    if swapped is None or (kind in _WAITING and _size(swapped) != _size(target)):
                        swapped = target
                        continue
                    exchange = swap_parts if kind in _WAITING else swap
                    done.append(exchange(data, swapped, target))
                    swapped = None
                case _:
                    pass  # of one object in a pack or a journal: the file is cut and removed as a whole
    return done


def _size(target: Target) -> int:
    """An object in a pack or a journal fits in the place of one of its size alone."""
    return target.end - target.first


def one_life(
    data: Path, folder: Path, plan: Plan, kinds: Collection[Kind], random_: random.Random, tally: Tally
) -> None:
    """Run an agent over a folder with many damages, of topics, and note what goes wrong."""
    topics = [*(topic for kind in _of_topics(kinds) for topic in plan.topics(kind)), *WHOLE]
    damages = [] if plan.is_running else damage_topics(data, plan, kinds, random_)
    with world.running(data, folder, "life") as agent:
        if isinstance(agent, str):
            tally.fail(damages[:1] or [_WHOLE_DAMAGE], f"the agent does not start: {agent[-500:]}")
            return
        try:
            if plan.is_running:
                asyncio.run(_read(agent, topics, tally))
                damages = damage_topics(data, plan, kinds, random_)
            victims = {topic: damage for damage in damages for topic in damage.victims}
            _read_tables(data, topics, victims, tally)
            asyncio.run(_consume(agent, topics, victims, tally))
            _work(agent, topics, victims, tally)
            asyncio.run(_consume_again(agent, topics, victims, tally))
        except (OSError, asyncio.IncompleteReadError, AssertionError) as error:
            tally.fail(damages[:1] or [_WHOLE_DAMAGE], f"the agent does not answer: {error!r}")
        for _ in range(BACKGROUND_POLLS):  # what works in the background begins again and again
            world.get(agent, "/metrics")
        if not agent.process.is_running:
            tally.fail(damages[:1], f"the process ended: {agent.process.stderr[-1500:]}")
    _read_tables(data, topics, {topic: damage for damage in damages for topic in damage.victims}, tally)
    for damage in damages:
        tally.tried[damage.target.kind, damage.mode] += 1
    unnamed = judge_audit(world.audit(data), in_order(damages), tally)
    if unnamed:
        repaired = _repaired(data, folder, unnamed, tally)
        for damage in repaired:
            tally.unnamed[damage.target.kind, damage.mode] += 1
        unnamed = [damage for damage in unnamed if damage not in repaired]
    for damage in unnamed:
        tally.fail([damage], "the audit does not name it")


def _repaired(data: Path, folder: Path, damages: Sequence[Damage], tally: Tally) -> list[Damage]:
    """The damages that the agent made harmless before the audit.

    It archives records that it has in memory, commits over table metadata that it knows, and deletes an intake object
    of which only the footer is damaged, once its chunks are archived. Another agent, which has read nothing before,
    then serves all records of the topics, and their tables.
    """
    with world.running(data, folder, "second-life") as agent:
        if isinstance(agent, str):
            tally.fail(damages, f"the agent does not start again: {agent[-500:]}")
            return []
        return [
            damage
            for damage in damages
            if asyncio.run(_is_whole(agent, damage.victims, tally))
            and all(fault_of_table(data, topic) == (False, "") for topic in damage.victims)
        ]


def _read_tables(data: Path, topics: Sequence[str], victims: dict[str, Damage], tally: Tally) -> None:
    """As Spark does: the right rows of every topic, or an error of one that is damaged."""
    for topic in topics:
        is_refused, fault = fault_of_table(data, topic)
        if is_refused and topic not in victims:
            fault = f"the table of {topic} cannot be read"
        if fault:
            _fail(topic, fault, victims, tally)


async def _is_whole(agent: LiveAgent, topics: Iterable[str], tally: Tally) -> bool:
    end = world.RECORDS + world.LATER_RECORDS
    async with connected(agent.bootstrap) as client:
        for topic in topics:
            read = await world.read_topic(client, topic, end)
            if read.wrong:
                tally.fail([_WHOLE_DAMAGE], f"a consumer of {topic} got what was never produced: {read.wrong[0]}")
            status, _ = world.get(agent, f"/iceberg/v1/namespaces/lake/tables/{topic}")
            if read.offsets != set(range(end)) or status != 200:
                return False
    return True


def judge_audit(said: str, damages: Sequence[Damage], tally: Tally) -> list[Damage]:
    """Note an audit that breaks off, and damages that it need not name. Returns those that it should have named."""
    if "Traceback" in said:
        tally.fail(damages[:1], f"the audit breaks off: {said[-1500:]}")
    unnamed = [damage for damage in damages if not _is_named(damage, said)]
    for damage in unnamed:
        if damage.mode not in AUDITED.get(damage.target.kind, ()):
            tally.unnamed[damage.target.kind, damage.mode] += 1
    return [damage for damage in unnamed if damage.mode in AUDITED.get(damage.target.kind, ())]


def _is_named(damage: Damage, said: str) -> bool:
    """By its key; an object in a pack or a journal by the topic whose records lie in it."""
    if damage.target.kind in _WAITING:
        return damage.target.topic is not None and f"{damage.target.topic}-0 " in said
    return key_of(damage) in said


def key_of(damage: Damage) -> str:
    return damage.target.path.as_posix().removeprefix("store/")


async def _read(agent: LiveAgent, topics: Sequence[str], tally: Tally) -> None:
    """Read all topics before anything is damaged."""
    async with connected(agent.bootstrap) as client:
        for topic in topics:
            judge(topic, await world.read_topic(client, topic, world.RECORDS), world.RECORDS, None, tally)


async def _consume(agent: LiveAgent, topics: Sequence[str], victims: dict[str, Damage], tally: Tally) -> None:
    async with connected(agent.bootstrap) as client:
        for topic in topics:
            read = await world.read_topic(client, topic, world.RECORDS)
            judge(topic, read, world.RECORDS, victims.get(topic), tally)
        for topic in topics:
            if not await world.produce(client, topic, world.RECORDS, world.LATER_RECORDS):
                _fail(topic, "a record is not taken", victims, tally)


async def _consume_again(agent: LiveAgent, topics: Sequence[str], victims: dict[str, Damage], tally: Tally) -> None:
    end = world.RECORDS + world.LATER_RECORDS
    async with connected(agent.bootstrap) as client:
        for topic in topics:
            read = await world.read_topic(client, topic, end)
            judge(topic, read, end, victims.get(topic), tally)
            missing = {world.RECORDS, end - 1} - read.offsets
            if missing and not read.wrong:
                _fail(topic, f"what was produced later is not served: {read.error}", victims, tally)


def judge(topic: str, read: Read, end: int, damage: Damage | None, tally: Tally) -> None:
    """Note what a consumer of a topic should not have got, or should have."""
    if read.wrong:
        what = f"a consumer of {topic} got what was never produced: {read.wrong[0]}"
        tally.fail([damage] if damage else [_WHOLE_DAMAGE], what)
    may_lose = damage is not None and damage.target.kind not in _KEPT
    if not may_lose and read.offsets != set(range(end)):
        what = f"{topic} is served in part: {len(read.offsets)} of {end}, {read.error}"
        tally.fail([damage] if damage else [_WHOLE_DAMAGE], what)


_KEPT = frozenset({Kind.METADATA, Kind.MANIFEST_LIST, Kind.MANIFEST, Kind.COPY, Kind.HINT})
"""Objects without which all records of the topic are served."""
_WHOLE_DAMAGE = Damage(mode=Mode.FLIP, target=Target(kind=Kind.PACK, path=Path("none"), first=0, end=0))
"""Whose fault it is that a topic fails of which nothing is damaged: somebody's."""


def _fail(topic: str, what: str, victims: dict[str, Damage], tally: Tally) -> None:
    tally.fail([victims.get(topic, _WHOLE_DAMAGE)], f"{topic}: {what}")


def _work(agent: LiveAgent, topics: Sequence[str], victims: dict[str, Damage], tally: Tally) -> None:
    """What agents do beside serving: archive passes with their tables, and answers of the catalog."""
    status, _ = world.post(agent, "/api/archive", {"topics": list(topics), "wait": True})
    if not status:
        tally.fail([_WHOLE_DAMAGE], "a request to archive is not answered")
    for topic in WHOLE:
        status, text = world.post(agent, "/api/archive", {"topics": [topic], "wait": True})
        if status != 200:
            tally.fail([_WHOLE_DAMAGE], f"{topic} is not archived: {status} {text[:300]}")
    for topic in topics:
        status, text = world.get(agent, f"/iceberg/v1/namespaces/lake/tables/{topic}")
        if not status or (topic not in victims and status != 200):
            _fail(topic, f"the catalog answers {status} {text[:200]}", victims, tally)
    status, text = world.get(agent, "/metrics")
    if status != 200:
        tally.fail([_WHOLE_DAMAGE], f"/metrics answers {status}")


def damage_cluster(data: Path, kind: Kind, mode: Mode, random_: random.Random) -> Damage:
    """Damage the one object of a kind; what it is swapped with is an object that any cluster has."""
    target = targets_of_cluster(data, kind)
    match mode:
        case Mode.FLIP:
            return flip(data, target, random_)
        case Mode.CUT:
            return cut(data, target, random_)
        case Mode.REMOVAL:
            return remove(data, target)
        case Mode.RENAME:
            return rename(data, target, random_)
        case Mode.SWAP:
            # Both are written again: the target's fate alone is looked at.
            if kind is Kind.TAIL:
                return swap(data, target, targets_of_topic(data, Kind.COPY, WHOLE[0], b""))
            return swap(data, target, targets_of_cluster(data, Kind.TAIL))


def own_life(data: Path, folder: Path, damage: Damage, tally: Tally) -> None:
    """Run an agent over a folder with one damage, of the cluster, and note what goes wrong."""
    tally.tried[damage.target.kind, damage.mode] += 1
    with world.running(data, folder, f"life-{data.name}") as agent:
        if isinstance(agent, str):
            judge_start(damage, agent, tally)
            match damage.target.kind:
                case Kind.SNAPSHOT:
                    judge_recovery(world.recovery(data), damage, tally)
                case Kind.JOURNAL:
                    judge_new_ledger(world.recovery(data), damage, tally)
                case _:
                    pass
            return
        try:
            asyncio.run(serve_whole(agent, damage, tally))
        except (OSError, asyncio.IncompleteReadError, AssertionError) as error:
            tally.fail([damage], f"the agent does not answer: {error!r}")
        judge_end(agent, [damage], tally)
        agent.process.kill()
    if judge_audit(world.audit(data), [damage], tally):
        tally.fail([damage], "the audit does not name it")


def judge_start(damage: Damage, told: str, tally: Tally) -> None:
    """Note where an agent should have started, or said why it does not."""
    kind, mode = damage.target.kind, damage.mode
    if kind not in MAY_REFUSE:
        tally.fail([damage], f"the agent does not start: {told[-500:]}")
    elif "Traceback" in told or not re.search(r"^penstock: .{20,}", told, re.MULTILINE):
        tally.fail([damage], f"the agent does not start, and does not say why: {told[-500:]}")
    else:
        tally.refused[kind, mode] += 1


def judge_recovery(told: str, damage: Damage, tally: Tally) -> None:
    """Note where a recovery would begin from a damaged snapshot, or would not say that it is lost."""
    key = key_of(damage)
    try:
        report = json.loads(told)
    except json.JSONDecodeError:
        tally.fail([damage], f"the recovery says: {told[-1500:]}")
        return
    if report["snapshot"] == key:
        tally.fail([damage], f"a recovery begins from it: {told[:1500]}")
    if key not in [found["object"] for found in report["damaged"]]:
        tally.fail([damage], f"a recovery reports no loss of it: {told[:1500]}")


def judge_new_ledger(report: str, damage: Damage, tally: Tally) -> None:
    """Note where a recovery would not begin the ledger again, in the same journal."""
    try:
        json.loads(report)
    except json.JSONDecodeError:
        tally.fail([damage], f"the recovery says: {report[-1500:]}")


def judge_end(agent: LiveAgent, damages: Sequence[Damage], tally: Tally) -> None:
    """Note where an agent's process is over."""
    if agent.process.is_running:
        return
    told = agent.process.stderr
    if not all(damage.target.kind in MAY_END for damage in damages) or "corrupt" not in told.lower():
        tally.fail(damages, f"the process ended: {told[-1500:]}")


async def serve_whole(agent: LiveAgent, damage: Damage, tally: Tally) -> None:
    """Read and write the topics of which nothing is damaged."""
    async with connected(agent.bootstrap) as client:
        for topic in WHOLE:
            read = await world.read_topic(client, topic, world.RECORDS)
            has_objects = damage.target.kind in (Kind.JOURNAL, Kind.PACK) and topic == WHOLE[1]
            may_lose = has_objects and damage.mode is not Mode.RENAME
            if read.wrong:
                tally.fail([damage], f"a consumer of {topic} got what was never produced: {read.wrong[0]}")
            elif not may_lose and read.offsets != set(range(world.RECORDS)):
                what = f"{topic} is served in part: {len(read.offsets)} of {world.RECORDS}, {read.error}"
                tally.fail([damage], what)
            if not await world.produce(client, topic, world.RECORDS, world.LATER_RECORDS):
                tally.fail([damage], f"{topic}: a record is not taken")


def sweep(folder: Path, plan: Plan, seed: int, tally: Tally, kinds: Collection[Kind]) -> None:
    """Build a folder, damage copies of it, and run agents over them."""
    random_ = random.Random(seed)
    chosen = frozenset(kinds)
    for name, layout in (("journal", chosen - WITHOUT_JOURNAL), ("packs", chosen & WITHOUT_JOURNAL)):
        if not layout.isdisjoint(OF_TOPICS):
            data = folder / name
            build(data, folder, plan, layout)
            one_life(data, folder, plan, layout, random_, tally)
    for name, layout in (
        ("small-journal", chosen - WITHOUT_JOURNAL),
        ("small-packs", (chosen & WITHOUT_JOURNAL) - {Kind.LOG}),
        ("killed", chosen & {Kind.LOG}),
    ):
        of_clusters = [kind for kind in OF_CLUSTERS if kind in layout]
        if of_clusters:
            data = folder / name
            world.build(
                data,
                folder,
                archived=WHOLE[:1],
                waiting=WHOLE[1:],
                has_journal=name == "small-journal",
                is_killed=name == "killed",
            )
            _own_lives(folder, data, plan, of_clusters, random_, tally)


def _own_lives(
    folder: Path, small: Path, plan: Plan, kinds: Sequence[Kind], random_: random.Random, tally: Tally
) -> None:
    lives: list[tuple[Path, Damage]] = []
    for kind in kinds:
        others = [_OTHERS[OF_CLUSTERS.index(kind) % len(_OTHERS)]] if plan.is_in_turn else _OTHERS
        common = [*[Mode.FLIP] * plan.flips, *[mode for mode in others for _ in range(plan.others)]]
        modes = [*common, *[Mode.RENAME] * (plan.others if kind in (Kind.JOURNAL, Kind.PACK) else 0)]
        for number, mode in enumerate(modes):
            data = world.copied(small, folder / f"{kind.name.lower()}-{number}")
            lives.append((data, damage_cluster(data, kind, mode, random_)))

    def live(life: tuple[Path, Damage]) -> Tally:
        single = Tally()
        own_life(life[0], folder, life[1], single)
        world.dropped(life[0])
        return single

    with ThreadPoolExecutor(LIVES_AT_ONCE) as threads:
        for single in threads.map(live, lives):
            tally.add(single)
