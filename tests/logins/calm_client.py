"""python -m tests.logins.calm_client ADDRESS: a client that is in, in a process of its own, until it is ended.

It produces a record and reads it again, one request at a time, and prints the seconds of the slower of both. Any error
ends it.
"""

import sys
import threading
import time
from datetime import timedelta
from itertools import count
from typing import Final

from kio.static.primitive import Records

from protocol.api_versions import ApiKey
from tests.security.login_agent import PASSWORD
from tests.support.clients.login_client import LoginClient, error_codes
from tests.support.records.plain_records import Record, make_batch

TOPIC: Final = "calm"
PAUSE_SECONDS: Final = 0.01


def round_seconds(client: LoginClient, offset: int) -> float:
    """The slower of a Produce and a Fetch, in seconds."""
    value = f"record {offset}".encode()
    partition = {"index": 0, "records": Records(make_batch([Record(offset=0, timestamp=1, value=value)]))}
    topics = [{"name": TOPIC, "partition_data": [partition]}]
    began = time.monotonic()
    produced = client.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": timedelta(seconds=10), "topic_data": topics})
    between = time.monotonic()
    assert produced.responses[0].partition_responses[0].base_offset == offset, produced
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1_000}
    sizes = {"max_wait": timedelta(seconds=5), "min_bytes": 1, "max_bytes": 1_000, "forgotten_topics_data": []}
    fetched = client.ask(ApiKey.FETCH, 12, {**sizes, "topics": [{"topic": TOPIC, "partitions": [wanted]}]})
    assert value in bytes(fetched.responses[0].partitions[0].records), fetched
    return max(between - began, time.monotonic() - between)


def main() -> None:
    pause = threading.Event()
    with LoginClient(sys.argv[1]) as client:
        assert client.log_in("alice", PASSWORD).error_code == 0
        topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        created = client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": timedelta(seconds=10)})
        assert set(error_codes(created)) == {0}, created
        for offset in count():
            print(f"{round_seconds(client, offset):.6f}", flush=True)
            pause.wait(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
