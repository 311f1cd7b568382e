"""The bucket is away for a minute: records wait, and no agent is started again."""

import threading

from tests.kube.conftest import StartLoad
from tests.kube.release import Release

AWAY_S = 60.0


def test_a_bucket_away_for_a_minute(kafka: Release, start_load: StartLoad) -> None:
    with start_load(kafka):
        kafka.lab.control.kill_store()
        threading.Event().wait(AWAY_S)
        assert all(agent.is_ready for agent in kafka.agents()), (
            "an outage of the bucket takes no agent from its Service"
        )
        kafka.lab.control.start_store()
