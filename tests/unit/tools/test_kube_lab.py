"""The lab finds cgroups and file systems of the machine, and copies unpacked images without their files."""

import os
from pathlib import Path

import pytest

from tests.support.cluster.conditions import wait_until
from tools.kube_lab.confinement import CONTROLLERS, hierarchies
from tools.kube_lab.images import DATABASES, LAYERS, copy_store, find_image
from tools.kube_lab.machine import file_system, missing_capabilities, problems
from tools.kube_lab.pod_logs import kept_pod_logs
from tools.steps import SetupFailed

VERSION_1 = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
31 27 0:25 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 27 0:26 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
33 27 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
34 27 0:28 / /tmp rw - tmpfs tmpfs rw
"""
VERSION_2 = "30 27 0:24 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def test_hierarchies_are_found_by_their_controllers() -> None:
    both = Path("/sys/fs/cgroup/cpu,cpuacct")
    assert hierarchies(VERSION_1) == {
        "cpu": both,
        "cpuacct": both,
        "name=systemd": Path("/sys/fs/cgroup/systemd"),
        "unified": Path("/sys/fs/cgroup/unified"),
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="anybody else is asked to be root, and nothing more")
def test_a_machine_without_cgroup_version_1_is_named(tmp_path: Path) -> None:
    reason = problems(tmp_path, hierarchies(VERSION_2))[0]
    assert "cgroup version 1" in reason
    assert all(controller in reason for controller in CONTROLLERS)
    assert "systemd.unified_cgroup_hierarchy=0" in reason


def test_capabilities_that_root_lacks_are_named() -> None:
    assert missing_capabilities("Name:\tsh\nCapEff:\t00000000a80425fb\n") == ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]
    assert missing_capabilities("CapEff:\t000001ffffffffff\n") == []


def test_the_file_system_of_a_folder_is_that_of_the_nearest_mount() -> None:
    assert file_system(Path("/tmp/lab"), VERSION_1) == "tmpfs"
    assert file_system(Path("/srv/lab"), VERSION_1) == "ext4"


def test_a_copied_store_has_databases_of_its_own_and_links_to_layers(tmp_path: Path) -> None:
    store, copied = tmp_path / "store", tmp_path / "node" / "store"
    layer = store / LAYERS / "1"
    layer.mkdir(parents=True)
    (layer / "file").write_text("of a layer")
    blob = store / "blobs" / "digest"
    blob.parent.mkdir()
    blob.write_text("packed")
    for database in DATABASES:
        (store / database).parent.mkdir(parents=True, exist_ok=True)
        (store / database).write_text("rows")
    copy_store(store, copied)
    (copied / DATABASES[0]).write_text("other rows")
    assert (store / DATABASES[0]).read_text() == "rows"
    assert (copied / LAYERS / "1").readlink() == layer
    assert (copied / "blobs" / "digest").samefile(blob)


def test_a_missing_image_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match="run make image"):
        find_image(tmp_path)


def test_logs_of_pods_that_are_gone_are_kept(tmp_path: Path) -> None:
    pods, kept = tmp_path / "node" / "pods", tmp_path / "logs"
    log = pods / "kafka_agent-0_uid" / "agent" / "0.log"
    with kept_pod_logs([pods], kept):
        log.parent.mkdir(parents=True)
        log.write_text("first\n")
        found = kept / "kafka_agent-0_uid.agent.0.log"
        wait_until(found.exists, "the log's second name")
        with log.open("a") as file:
            file.write("then\n")
        log.unlink()
    assert found.read_text() == "first\nthen\n"
    assert list(kept.iterdir()) == [found]
