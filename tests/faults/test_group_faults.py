"""Groups whose coordinators are killed, paused beyond their lease and drained: nothing skipped, nothing forgotten.

20 consumers of four libraries in four groups, one for each way to share partitions, commit by hand what they processed.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.group_run import LIBRARIES, GroupRun
from tests.support.cluster.cluster import ClusterFactory
from tests.support.services.java import JavaProgram
from tests.torture.schedule import Act

CLIENT = Path(__file__).parent / "consumers" / "GroupClient.java"


def check(run: GroupRun) -> None:
    report = run.run()
    print(report)
    assert list(report.anomalies) == []
    assert len(report.blows) == len(run.blows)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_groups_go_on_where_they_were_when_their_coordinators_fail(
    clusters: ClusterFactory, compile_java: Callable[[Path], JavaProgram], tmp_path: Path
) -> None:
    check(
        GroupRun(
            cluster=clusters(),
            folder=tmp_path / "consumers",
            java=compile_java(CLIENT),
            records=50_000,
            pause_ms=700,
            blows=[("static", Act.KILL), ("next", Act.PAUSE), ("cooperative", Act.STOP)],
            is_return_awaited=False,
        )
    )


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_million_records_are_read_while_each_groups_coordinator_fails_in_every_way(
    clusters: ClusterFactory, compile_java: Callable[[Path], JavaProgram], tmp_path: Path
) -> None:
    check(
        GroupRun(
            cluster=clusters(),
            folder=tmp_path / "consumers",
            java=compile_java(CLIENT),
            records=1_000_000,
            pause_ms=500,
            blows=[(group, act) for group in LIBRARIES for act in (Act.KILL, Act.PAUSE, Act.STOP)],
        )
    )
