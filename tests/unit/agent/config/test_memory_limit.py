"""The memory limit of a control group, as both versions of Linux's control groups say it."""

from pathlib import Path

import pytest

from agent.config.memory_limit import memory_limit, read_cache_bytes
from protocol.limits import MIB

GIB = 1024 * MIB
V1_NONE = "9223372036854771712\n"
V1 = "12:memory:{}\n11:cpu,cpuacct:{}\n1:name=systemd:{}\n0::/\n"
IN_V2 = "sys/fs/cgroup"
IN_V1 = "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        pytest.param("0::/\n", {f"{IN_V2}/memory.max": f"{GIB}\n"}, GIB, id="2, a container"),
        pytest.param("0::/\n", {}, None, id="2, a plain machine: its root has no such file"),
        pytest.param("0::/a/b\n", {f"{IN_V2}/a/b/memory.max": "max\n"}, None, id="2, without a limit"),
        pytest.param(
            "0::/a/b\n",
            {f"{IN_V2}/a/b/memory.max": "max\n", f"{IN_V2}/a/memory.max": f"{2 * GIB}\n"},
            2 * GIB,
            id="2, of the group above",
        ),
        pytest.param(
            "0::/a/b\n",
            {f"{IN_V2}/a/b/memory.max": f"{GIB}\n", f"{IN_V2}/a/memory.max": f"{2 * GIB}\n"},
            GIB,
            id="2, the least of several",
        ),
        pytest.param(V1, {f"{IN_V1}/a/memory.limit_in_bytes": f"{GIB}\n"}, GIB, id="1"),
        pytest.param(V1, {f"{IN_V1}/memory.limit_in_bytes": f"{GIB}\n"}, GIB, id="1, a container without its path"),
        pytest.param(
            V1,
            {f"{IN_V1}/a/memory.limit_in_bytes": V1_NONE, f"{IN_V1}/memory.limit_in_bytes": V1_NONE},
            None,
            id="1, without a limit",
        ),
        pytest.param("0::/\n", {f"{IN_V2}/memory.max": f"{65 * GIB}\n"}, None, id="more than the machine has"),
        pytest.param("5:cpu:/a\n", {f"{IN_V1}/a/memory.limit_in_bytes": f"{GIB}\n"}, None, id="of another controller"),
        pytest.param(None, {}, None, id="no Linux"),
    ],
)
def test_the_limit(tmp_path: Path, groups: str | None, files: dict[str, str], limit: int | None) -> None:
    if groups is not None:
        files = files | {
            "proc/self/cgroup": groups.replace("{}", "/a"),
            "proc/meminfo": f"MemFree: 1 kB\nMemTotal: {64 * 1024 * 1024} kB\n",
        }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_limit(tmp_path) == limit


@pytest.mark.parametrize(
    ("limit", "processes", "expected"),
    [
        (None, 1, 256 * MIB),
        (None, 4, 256 * MIB),
        (GIB, 1, 256 * MIB),
        (4 * GIB, 1, GIB),
        (4 * GIB, 4, 256 * MIB),
        (MIB, 1, MIB),
        (8192 * GIB, 1, 1024 * GIB),
    ],
)
def test_the_read_cache_is_a_quarter_of_it_for_all_processes(limit: int | None, processes: int, expected: int) -> None:
    assert read_cache_bytes(limit, processes) == expected


def test_this_machine_can_be_asked() -> None:
    limit = memory_limit()
    assert limit is None or limit > 0
