"""Lives in which `cluster.json`, the newest snapshot and the tail manifest are damaged under an agent that read them.

Rule: an agent looks at them again by itself, at `cluster.json` every half minute, so a life is longer than that. All
are damaged in one life: none may end the process, or change what consumers get. Then `cluster.json` is put back, and
the agent goes on without a restart (safety rules S20 and S22).
"""

import asyncio
import random
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from protocol.limits import BUCKET_CHECK_INTERVAL_S
from tests.damage import world
from tests.damage.damages import Damage, Kind, Mode
from tests.damage.lives import WHOLE, Plan, Tally, damage_cluster, judge, judge_audit, serve_whole
from tests.damage.world import LiveAgent
from tests.support.clients.raw_client import RawClient, connected
from tests.support.records.plain_records import make_batch

IDENTITY = Path("store", "cluster.json")
WATCHED = (Kind.IDENTITY, Kind.SNAPSHOT, Kind.TAIL)
FLIPS_DIVISOR = 10
"""Lives with flips are so many times fewer than flips of kinds that share a life."""
LIVES_AT_ONCE = 4
"""They wait most of the time."""
WATCH_SECONDS = BUCKET_CHECK_INTERVAL_S + 4.0
BACK_SECONDS_MAX = 30.0
POLL_MS = 1_000
DOUBT = "the bucket names no owner"
"""What an agent logs once it has seen that `cluster.json` says nothing that can be read."""


def sweep_watched(folder: Path, plan: Plan, random_: random.Random, tally: Tally, kinds: Collection[Kind]) -> None:
    """Damage a copy of a folder in each mode, under an agent of its own."""
    chosen = [kind for kind in WATCHED if kind in kinds]
    small = folder / "small"
    world.build(small, folder, archived=WHOLE[:1], waiting=WHOLE[1:])
    modes = [Mode.FLIP] * -(-plan.flips // FLIPS_DIVISOR)
    modes += [Mode.CUT, Mode.REMOVAL, Mode.SWAP] if plan.others else []
    lives = [
        (world.copied(small, folder / f"watched-{number}"), mode, random.Random(random_.random()))
        for number, mode in enumerate(modes)
    ]

    def live(life: tuple[Path, Mode, random.Random]) -> Tally:
        single = Tally()
        watched_life(life[0], folder, chosen, life[1], life[2], single)
        world.dropped(life[0])
        return single

    with ThreadPoolExecutor(LIVES_AT_ONCE) as threads:
        for single in threads.map(live, lives):
            tally.add(single)


def watched_life(
    data: Path, folder: Path, kinds: Collection[Kind], mode: Mode, random_: random.Random, tally: Tally
) -> None:
    """Damage an object of each kind under an agent, and note what goes wrong until it has looked at them again."""
    damages: list[Damage] = []
    damaged: dict[Path, bytes | None] = {}
    named = (data / IDENTITY).read_bytes()
    with world.running(data, folder, f"life-{data.name}") as agent:
        assert isinstance(agent, LiveAgent), agent
        try:
            asyncio.run(_read(agent, tally))
            damages = [damage_cluster(data, kind, mode, random_) for kind in kinds]
            damaged = {damage.target.path: content_of(data / damage.target.path) for damage in damages}
            asyncio.run(_watched(agent, tally))
            if Kind.IDENTITY in kinds and mode is not Mode.FLIP and DOUBT not in agent.process.stderr:
                tally.fail(damages[:1], "the agent has not looked whose bucket it is")
            (data / IDENTITY).write_bytes(named)
            asyncio.run(_back(agent, damages, tally))
        except (OSError, asyncio.IncompleteReadError, AssertionError) as error:
            tally.fail(damages[:1], f"the agent does not answer: {error!r}")
        (data / IDENTITY).write_bytes(named)  # or nothing can be audited
        if not agent.process.is_running:
            tally.fail(damages, f"the process ended: {agent.process.stderr[-1500:]}")
        agent.process.kill()
    tally.tried.update((damage.target.kind, mode) for damage in damages)
    said = world.audit(data)
    # The agent writes some of these objects again, and drops older snapshots.
    left = [damage for damage in damages if content_of(data / damage.target.path) == damaged[damage.target.path]]
    for damage in judge_audit(said, [damage for damage in left if damage.mode is not Mode.REMOVAL], tally):
        tally.fail([damage], "the audit does not name it")


def content_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


async def _watched(agent: LiveAgent, tally: Tally) -> None:
    """Read what is whole, and write, until the agent has looked at everything again."""
    end_s = time.monotonic() + WATCH_SECONDS
    while time.monotonic() < end_s and agent.process.is_running:
        await _read(agent, tally)
        async with connected(agent.bootstrap) as client:
            await _is_acknowledged(client)  # or not
            await _pass_time(client)


async def _read(agent: LiveAgent, tally: Tally) -> None:
    async with connected(agent.bootstrap) as client:
        for topic in WHOLE:
            judge(topic, await world.read_topic(client, topic, world.RECORDS), world.RECORDS, None, tally)


async def _back(agent: LiveAgent, damages: Sequence[Damage], tally: Tally) -> None:
    """Wait until records are acknowledged again, and read and write what is whole."""
    end_s = time.monotonic() + BACK_SECONDS_MAX
    async with connected(agent.bootstrap) as client:
        while not await _is_acknowledged(client):
            if time.monotonic() > end_s:
                tally.fail(damages[:1], "nothing is acknowledged although cluster.json is back")
                return
            await _pass_time(client)
    await serve_whole(agent, damages[0], tally)


async def _is_acknowledged(client: RawClient) -> bool:
    try:
        await client.produce_batch(world.PADDING, 0, make_batch(world.records(world.PADDING, 0, 1)))
    except AssertionError:
        return False
    return True


async def _pass_time(client: RawClient) -> None:
    """As a consumer does that waits for the next record."""
    _, end = await client.log_end(world.PADDING, 0)
    await client.fetch(world.PADDING, 0, end, wait_ms=POLL_MS)
