"""Archive passes on request, and the wait until the garbage collector has removed what they replaced."""

import json
import subprocess
import urllib.request
from collections.abc import Callable

from tests.support.lake.bucket_listing import INTAKE, ListedBucket
from tests.support.services.local_services import PENSTOCK, Penstock

SECONDS_MAX = 180

AT_ONCE = {"gc-min-age-s": "1", "archive-interval-s": "3600", "read-cache-bytes": "1MiB"}
"""Options of a broker that archives on request only, and deletes at once what is replaced. Of what it archived it has
little in memory, so consumers get it from the archive."""

Archive = Callable[[Penstock, str], int]
"""Archives what a topic holds; returns how many records that were."""


def archive_by_http(broker: Penstock, topic: str, token: str = "") -> int:
    """`token`: a bearer token, for a broker that needs one."""
    body = json.dumps({"topics": [topic], "wait": True}).encode()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(f"http://{broker.http}/api/archive", body, headers=headers)
    with urllib.request.urlopen(request, timeout=SECONDS_MAX) as response:
        return _records(response.read())


def archive_by_command(broker: Penstock, topic: str) -> int:
    command = [str(PENSTOCK), "archive", topic, "--wait", "--json", "--server", broker.http]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    return _records(done.stdout)


def archive_and_clean(broker: Penstock, bucket: ListedBucket, topic: str, archive: Archive) -> int:
    """Archives, and returns once the intake that was there is deleted: grace and garbage collector passed."""
    replaced = set(filter(INTAKE.fullmatch, bucket.keys()))
    records = archive(broker, topic)
    broker.process.wait_until(lambda: replaced.isdisjoint(bucket.keys()), "the cleaner's pass", seconds_max=SECONDS_MAX)
    return records


def _records(answer: bytes) -> int:
    return sum(row["records"] for row in json.loads(answer)["passes"])
