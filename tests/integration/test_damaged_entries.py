"""A bit of an entry in etcd's file changes so that it still says something: nobody believes it (safety rule S20).

Rule: an etcd of this test's own; what is asked is what docs/RUNBOOK.md asks: agent, doctor, audit, recover.
"""

import asyncio
import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.damage import world
from tests.damage.world import NOTE, Agent, Read
from tests.etcd_service import Etcd
from tests.etcd_values import flip_in_file, is_in_file, pairs_of
from tests.processes import Process
from tests.raw_client import connected
from tests.services import PENSTOCK

TOPIC = "t"
PAGE = "The ledger holds what cannot be read"
HEADER_BYTES = 6


async def _read(agent: Agent) -> Read:
    async with connected(agent.bootstrap) as client:
        return await world.read_topic(client, TOPIC, world.RECORDS)


@pytest.mark.slow
def test_s20_an_entry_that_changed_so_that_it_can_be_read_is_refused_and_stepped_over_by_a_recovery(
    tmp_path: Path,
) -> None:
    with Etcd(tmp_path / "etcd") as etcd:
        (member,) = etcd.members
        place = ["--ledger", f"etcd://{member.endpoint}/c", "--store", f"file://{tmp_path / 'store'}"]

        def running(name: str) -> Process:
            options = ["--listen=127.0.0.1:0", "--http=127.0.0.1:0", f"--name={name}", "--archive-interval-s=3600"]
            return Process([PENSTOCK, "agent", *place, *options], tmp_path, name=name)

        def offline(name: str, *options: str) -> subprocess.CompletedProcess[str]:
            command: list[str | Path] = [PENSTOCK, name, *place, *options]
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

        with running("before") as process:
            agent = world.agent_of(process)
            assert isinstance(agent, Agent), agent
            world.create(agent, [TOPIC])
            process.wait_until(lambda: b"/penstock/c/snapshot" in pairs_of(member.endpoint), "a snapshot")
            asyncio.run(world.fill(agent, [TOPIC]))
            world.tell(agent, [TOPIC])
            process.stop()
        ((key, value),) = [pair for pair in pairs_of(member.endpoint).items() if NOTE.encode() in pair[1]]
        bit = value.index(NOTE.encode()) * 8 + 5
        member.wait_until(lambda: is_in_file(member.data, {key: value}), "etcd's file")
        member.kill()
        flip_in_file(member.data, key, value, bit)
        member.start(etcd.members)
        member.wait()

        changed = pairs_of(member.endpoint)[key]
        assert NOTE.capitalize().encode() in changed, "the bit is not the one that is meant"
        msgspec.msgpack.decode(changed[HEADER_BYTES:])  # and what it says can be read

        with running("after") as process:
            said = world.agent_of(process)
            assert isinstance(said, str)
            assert "cannot be used: its checksum is" in said
            assert PAGE in said
        doctor = offline("doctor")
        assert doctor.returncode == 1
        assert "cannot be used: its checksum is" in doctor.stdout + doctor.stderr
        audit = offline("audit", "--json")
        assert audit.returncode == 1
        (fault,) = json.loads(audit.stdout)["disagreements"]
        assert fault["what"] == "ledger"
        assert "cannot be used: its checksum is" in fault["detail"]

        recovered = offline("recover", "--json", "--store-timeout-s", "5")
        assert recovered.returncode == 0, recovered.stderr
        with running("again") as process:
            agent = world.agent_of(process)
            assert isinstance(agent, Agent), agent
            read = asyncio.run(_read(agent))
            assert (read.wrong, read.offsets) == ([], set(range(world.RECORDS)))
            assert f"offset of {TOPIC}" not in world.told(agent, [TOPIC]), "what was committed is lost, not another"
            process.stop()
        assert offline("audit").returncode == 0
