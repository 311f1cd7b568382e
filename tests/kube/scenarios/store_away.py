"""The bucket is away for a minute: records wait, and no agent is started again."""

import threading

from tests.kube.conftest import StartLoad
from tests.kube.release import Release

AWAY_S = 60.0
IN_FLIGHT_S = 10.0
"""After so long no record is acknowledged any more that had reached the bucket before."""


def test_a_bucket_away_for_a_minute(kafka: Release, start_load: StartLoad) -> None:
    pause = threading.Event()
    with start_load(kafka) as load:
        kafka.lab.control.kill_store()
        try:
            pause.wait(IN_FLIGHT_S)
            before = load.acknowledged_count
            pause.wait(AWAY_S - IN_FLIGHT_S)
            assert load.acknowledged_count == before, "records are acknowledged that no bucket has"
            assert all(agent.is_ready for agent in kafka.agents()), (
                "an outage of the bucket takes no agent from its Service"
            )
        finally:
            kafka.lab.control.start_store()
    assert load.longest_ack_s > AWAY_S - IN_FLIGHT_S
