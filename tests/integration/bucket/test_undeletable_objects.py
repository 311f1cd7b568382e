"""One object that a bucket's policy protects holds up the deletion of no other one, and is reported."""

import json
import subprocess
from urllib.request import urlopen

import pytest

from benchmarks.measure.exposition import scrape, total
from tests.support.services.local_services import PENSTOCK, Minio, PenstockFactory
from tests.support.services.minio_credentials import limited_keys

FIRST_INTAKE = "intake/*/0000000000000000"
"""The first intake object of any session, by the wildcard of policies."""


def penstock_of(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([PENSTOCK, *command], capture_output=True, text=True, check=False, timeout=60)


def objects_below(minio: Minio, bucket: str, prefix: str) -> list[str]:
    folder = minio.data / bucket / prefix
    return sorted(str(path.parent.relative_to(minio.data / bucket)) for path in folder.rglob("xl.meta"))


@pytest.mark.slow  # snapshots for garbage are a minute apart
def test_other_garbage_goes_while_one_object_is_protected_and_the_audit_names_it(
    minio: Minio, penstock: PenstockFactory
) -> None:
    bucket = minio.make_bucket("protected")
    env = {**minio.settings, **limited_keys(minio, bucket, ["s3:*"], undeletable=FIRST_INTAKE)}
    broker = penstock(store=f"s3://{bucket}", env=env, options={"gc-min-age-s": "1", "archive-interval-s": "3600"})
    for topic in ("a", "b", "c"):
        subprocess.run(
            [PENSTOCK, "produce", topic, "--bootstrap", broker.bootstrap],
            input="one\ntwo\n",
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    assert len(objects_below(minio, bucket, "intake")) >= 3
    for topic in ("a", "b", "c"):
        assert penstock_of("topics", "delete", topic, "--yes", "--server", broker.http).returncode == 0
    broker.process.wait_until(
        lambda: (
            len(objects_below(minio, bucket, "intake")) == 1
            and total(scrape(broker.http), "penstock_gc_undeletable_objects") == 1
        ),
        "all but the protected object to be deleted",
        seconds_max=60.0,
    )
    (left,) = objects_below(minio, bucket, "intake")
    with urlopen(f"http://{broker.http}/api/status", timeout=10) as answer:
        assert json.load(answer)["is_ready"]
    audited = penstock_of("audit", "--server", broker.http)
    assert audited.returncode == 1
    assert "undeletable" in audited.stdout
    assert left in audited.stdout
    assert "the object store did not delete objects that are garbage" in broker.process.stderr
