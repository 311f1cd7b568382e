"""The same for a cluster over etcd and a bucket: intake objects that are objects, and the values of etcd's keys.

Rule: many intake objects are damaged in one life; of etcd's values one in each life, over copies of the member's data
and of the bucket. Bits are flipped in etcd's file; else values are changed through its gateway, objects through the
store's adapter, as anybody can.
"""

import asyncio
import json
import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from storage.s3.settings import S3Settings
from storage.s3.store import S3Store
from tests.damage import world
from tests.damage.damages import Damage, Kind, Mode, Target
from tests.damage.lives import WHOLE, Plan, Tally, judge, judge_end, judge_start, serve_whole
from tests.damage.world import LiveAgent
from tests.support.clients.raw_client import connected
from tests.support.cluster.cluster import Cluster, ClusterFactory
from tests.support.processes import Process
from tests.support.services.etcd import Etcd
from tests.support.services.etcd_values import as_text, ask, flip_in_file, is_in_file, pairs_of, rows_of
from tests.support.services.local_services import PENSTOCK, MinioProcess

AHEAD_SECONDS_MAX = 3600.0
_BYTES_MAX = 1 << 20


def sweep_intake(folder: Path, plan: Plan, random_: random.Random, tally: Tally) -> None:
    """Flip bits of intake objects in a bucket, cut, remove and swap them, under an agent and before the next one."""
    with ExitStack() as stack:
        service = MinioProcess(folder / "minio")
        service.wait(stack.enter_context(service.start()))
        etcd = stack.enter_context(Etcd(folder / "etcd"))
        cluster = ClusterFactory(etcd=etcd, minio=service.server, folder=folder, stack=stack)()
        topics = [*plan.topics(Kind.OBJECT), WHOLE[1]]
        agent = _started(cluster, "build")
        world.create(agent, topics)
        asyncio.run(world.fill(agent, topics))
        damages = asyncio.run(_damage_objects(cluster, plan, random_))
        for damage in damages:
            tally.tried[damage.target.kind, damage.mode] += 1
        victims = {topic: damage for damage in damages for topic in damage.victims}
        for name in ("build", "life"):  # of the first one caches may hold what is right; the other one has read nothing
            with suppress_silence(tally, damages):
                asyncio.run(_read_all(agent, topics, victims, tally))
                asyncio.run(_read_all(agent, topics, victims, tally))
            judge_end(agent, damages[:1], tally)
            if name == "build":
                agent.process.stop()
                agent = _started(cluster, "life")


@contextmanager
def suppress_silence(tally: Tally, damages: Sequence[Damage]) -> Iterator[None]:
    """An agent that does not answer is a failure of all."""
    try:
        yield
    except (OSError, asyncio.IncompleteReadError, AssertionError) as error:
        tally.fail(damages[:1], f"the agent does not answer: {error!r}")


def _started(cluster: Cluster, name: str) -> LiveAgent:
    made = cluster.start(name, options={"archive-interval-s": "3600"})
    return LiveAgent(process=made.process, bootstrap=made.bootstrap, http=made.http)


async def _read_all(agent: LiveAgent, topics: Sequence[str], victims: Mapping[str, Damage], tally: Tally) -> None:
    async with connected(agent.bootstrap) as client:
        for topic in topics:
            judge(topic, await world.read_topic(client, topic, world.RECORDS), world.RECORDS, victims.get(topic), tally)


async def _damage_objects(cluster: Cluster, plan: Plan, random_: random.Random) -> list[Damage]:
    store = S3Store(S3Settings.from_environment(cluster.store, cluster.env, request_timeout_s=30))
    try:
        found = {meta.key: await store.get(meta.key) async for meta in store.list("intake/")}
        keys = {topic: _key_of(found, topic) for topic in plan.topics(Kind.OBJECT)}
        done: list[Damage] = []
        pairs = list(zip(plan.modes(), keys.items(), strict=True))
        swapped: tuple[str, str] | None = None
        for mode, (topic, key) in pairs:
            data = found[key]
            target = Target(kind=Kind.OBJECT, path=Path(key), first=0, end=len(data), topic=topic)
            if mode is Mode.FLIP:
                bit = random_.randrange(len(data) * 8)
                changed = bytearray(data)
                changed[bit // 8] ^= 1 << bit % 8
                await store.put(key, [bytes(changed)])
                done.append(Damage(mode=mode, target=target, place=bit))
            elif mode is Mode.CUT:
                place = random_.randrange(len(data))
                await store.put(key, [data[:place]])
                done.append(Damage(mode=mode, target=target, place=place))
            elif mode is Mode.REMOVAL:
                await store.delete([key])
                done.append(Damage(mode=mode, target=target))
            elif swapped is None:
                swapped = topic, key
            else:
                await store.put(key, [found[swapped[1]]])
                await store.put(swapped[1], [data])
                done.append(Damage(mode=mode, target=target, others=frozenset({swapped[0]})))
                swapped = None
        return done
    finally:
        await store.close()


def _key_of(found: Mapping[str, bytes], topic: str) -> str:
    (key,) = (key for key, data in found.items() if world.marker(topic) in data)
    return key


def sweep_etcd(folder: Path, plan: Plan, random_: random.Random, tally: Tally) -> None:
    """Flip a bit of a key or a value in etcd, cut a value, remove or swap it, and run an agent over it, each in a life
    of its own.

    Flips are in etcd's file, as a disk makes them: a put gives its key another place in the order, which is noticed
    whatever the value is. They are of entries that an agent has to apply, but for every fourth;
    four are of values, then four of keys.
    """
    etcd = Etcd(folder / "etcd")
    (member,) = etcd.members
    built, store = folder / "etcd-built", folder / "store"

    def running(name: str) -> Process:
        command: list[str | Path] = [
            PENSTOCK,
            "agent",
            "--ledger",
            f"etcd://{member.endpoint}/c",
            "--store",
            f"file://{store}",
        ]
        options = {"listen": "127.0.0.1:0", "http": "127.0.0.1:0", "name": name, "archive-interval-s": "3600"}
        command += [f"--{key}={value}" for key, value in options.items()]
        return Process(command, folder, name=name)

    with etcd, running("build") as process:
        agent = world.agent_of(process)
        assert isinstance(agent, LiveAgent), agent
        world.create(agent, WHOLE)
        # The first two entries have no checksum. What follows a snapshot is what is believed from the ledger alone.
        process.wait_until(lambda: b"snapshot" in {_name(key) for key in pairs_of(member.endpoint)}, "a snapshot")
        asyncio.run(world.fill(agent, WHOLE))
        status, text = world.post(agent, "/api/archive", {"topics": [WHOLE[0]], "wait": True})
        assert status == 200, text
        world.tell(agent, WHOLE)
        told = world.told(agent, WHOLE)
        process.stop()
        values, entries = pairs_of(member.endpoint), _entries_to_apply(member.endpoint)
        values = {key: value for key, value in values.items() if value}
        member.wait_until(lambda: is_in_file(member.data, values), "etcd's file")
        member.kill()
    assert len(entries) > len(WHOLE), "a snapshot covers what was to be damaged"
    world.copied(member.data, built)
    world.copied(store, folder / "store-built")
    others = plan.others * ([Mode.SWAP] if plan.is_in_turn else [Mode.CUT, Mode.REMOVAL, Mode.SWAP])
    for number, mode in enumerate([*[Mode.FLIP] * plan.flips, *others]):
        for path, pristine in ((member.data, built), (store, folder / "store-built")):
            shutil.rmtree(path)
            world.copied(pristine, path)
        flipped: Damage | None = None
        if mode is Mode.FLIP:
            key = random_.choice(entries if number % 4 else sorted(values))
            is_in_key = number % 8 >= 4
            size = len(key if is_in_key else values[key])
            place = random_.randrange(size * 8)
            flip_in_file(member.data, key, values[key], place, is_in_key=is_in_key)
            path = Path(f"{'key' if is_in_key else 'value'} of {key!r}")
            target = Target(kind=Kind.ETCD, path=path, first=0, end=size)
            flipped = Damage(mode=Mode.FLIP, target=target, place=place)
        with etcd:
            damage = flipped or _damage_value(member.endpoint, mode, random_)
            tally.tried[Kind.ETCD, mode] += 1
            with running(f"life-etcd-{number}") as process:
                agent = world.agent_of(process)
                if isinstance(agent, str):
                    judge_start(damage, agent, tally)
                    continue
                with suppress_silence(tally, [damage]):
                    found = world.told(agent, WHOLE)
                    for name in sorted(told.keys() | found.keys()):
                        if found.get(name) != told.get(name):
                            what = f"{name} is {found.get(name)!r}, where {told.get(name)!r} was acknowledged"
                            tally.fail([damage], what)
                    _judge_time(agent, damage, tally)
                    asyncio.run(serve_whole(agent, damage, tally))
                judge_end(agent, [damage], tally)
                process.kill()


def _judge_time(agent: LiveAgent, damage: Damage, tally: Tally) -> None:
    """The state's time comes from checked clocks."""
    status, text = world.get(agent, "/api/inspect/state")
    assert status == 200, text
    ahead_s = json.loads(text)["time_ms"] / 1_000 - time.time()
    if abs(ahead_s) > AHEAD_SECONDS_MAX:
        tally.fail([damage], f"the state's time is {ahead_s:.0f} s ahead")


def _entries_to_apply(endpoint: str) -> list[bytes]:
    """The keys of entries above the snapshot, in order."""
    rows = rows_of(endpoint)
    position = next(json.loads(row.value)["position"] for row in rows if _name(row.key) == b"snapshot")
    return sorted(row.key for row in rows if b"/ledger/" in row.key and row.mod_revision > position)


def _damage_value(endpoint: str, mode: Mode, random_: random.Random) -> Damage:
    pairs = pairs_of(endpoint)
    key, value = random_.choice(sorted((key, value) for key, value in pairs.items() if value))
    target = Target(kind=Kind.ETCD, path=Path(repr(key)), first=0, end=len(value))
    place = -1
    if mode is Mode.CUT:
        place = random_.randrange(len(value))
        _put(endpoint, key, value[:place])
    elif mode is Mode.REMOVAL:
        ask(endpoint, "deleterange", {"key": as_text(key)})
    else:
        assert mode is Mode.SWAP, mode
        other = random_.choice(sorted(pairs.keys() - {key}))
        _put(endpoint, key, pairs[other])
        _put(endpoint, other, value)
    return Damage(mode=mode, target=target, place=place)


def _name(key: bytes) -> bytes:
    return key.rpartition(b"/")[2]


def _put(endpoint: str, key: bytes, value: bytes) -> None:
    ask(endpoint, "put", {"key": as_text(key), "value": as_text(value), "ignore_lease": False})
