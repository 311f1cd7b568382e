"""A bit of an entry in etcd's file changes so that it still says something: nobody believes it (safety rule S20).

Of its value, or of its key, which then names another session or another number.

Rule: an etcd of this test's own; the commands are those of docs/operations/recovery.md: agent, doctor, audit, recover.
"""

import asyncio
import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.damage import world
from tests.damage.world import NOTE, LiveAgent, Read
from tests.support.clients.raw_client import connected
from tests.support.processes import Process
from tests.support.services.etcd import Etcd
from tests.support.services.etcd_values import flip_in_file, is_in_file, pairs_of
from tests.support.services.local_services import PENSTOCK

TOPIC = "t"
PAGE = "The ledger holds what cannot be read"
HEADER_BYTES = 6


async def _read(agent: LiveAgent) -> Read:
    async with connected(agent.bootstrap) as client:
        return await world.read_topic(client, TOPIC, world.RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("digit", "says"),
    [(None, "cannot be used: its checksum is"), (-33, "was put at revision"), (-16, "cannot be used: its checksum is")],
    ids=["value", "session in the key", "number in the key"],
)
def test_s20_an_entry_that_changed_so_that_it_can_be_read_is_refused_and_stepped_over_by_a_recovery(
    tmp_path: Path, digit: int | None, says: str
) -> None:
    """`digit`: which one of the key is 8 where it was 0."""
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
            assert isinstance(agent, LiveAgent), agent
            world.create(agent, [TOPIC])
            process.wait_until(lambda: b"/penstock/c/snapshot" in pairs_of(member.endpoint), "a snapshot")
            asyncio.run(world.fill(agent, [TOPIC]))
            world.tell(agent, [TOPIC])
            process.stop()
        ((key, value),) = [pair for pair in pairs_of(member.endpoint).items() if NOTE.encode() in pair[1]]
        changed = bytearray(value if digit is None else key)
        at = value.index(NOTE.encode()) if digit is None else len(key) + digit
        bit = 5 if digit is None else 3
        changed[at] ^= 1 << bit
        member.wait_until(lambda: is_in_file(member.data, {key: value}), "etcd's file")
        member.kill()
        flip_in_file(member.data, key, value, at * 8 + bit, is_in_key=digit is not None)
        member.start(etcd.members)
        member.wait()

        found = pairs_of(member.endpoint)
        if digit is None:
            assert NOTE.capitalize().encode() in found[key], "the bit is not the one that is meant"
            msgspec.msgpack.decode(found[key][HEADER_BYTES:])  # and what it says can be read
        else:
            assert key not in found
            assert (key[digit:][:1], changed[digit:][:1]) == (b"0", b"8")
            assert found[bytes(changed)] == value

        with running("after") as process:
            said = world.agent_of(process)
            assert isinstance(said, str)
            assert says in said
            assert PAGE in said
        doctor = offline("doctor")
        assert doctor.returncode == 1
        assert says in doctor.stdout + doctor.stderr
        audit = offline("audit", "--json")
        assert audit.returncode == 1
        (fault,) = json.loads(audit.stdout)["disagreements"]
        assert fault["what"] == "ledger"
        assert says in fault["detail"]

        recovered = offline("recover", "--json", "--store-timeout-s", "5")
        assert recovered.returncode == 0, recovered.stderr
        with running("again") as process:
            agent = world.agent_of(process)
            assert isinstance(agent, LiveAgent), agent
            read = asyncio.run(_read(agent))
            assert (read.wrong, read.offsets) == ([], set(range(world.RECORDS)))
            assert f"offset of {TOPIC}" not in world.told(agent, [TOPIC]), "what was committed is lost, not another"
            process.stop()
        assert offline("audit").returncode == 0
