"""MinIO behind one of the peers, and what it takes without a broker before it: plain PUTs through obstore."""

import asyncio
import statistics
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import obstore
from obstore.store import S3Store

from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.services.local_services import Minio
from tools import go_servers
from tools.steps import SetupFailed

MIB = 1 << 20
LARGE_BYTES = 8 * MIB
SMALL_BYTES = 64 * 1024
SMALL_COUNT = 50
IN_FLIGHT = 4
BUCKET = "bench"
RAW_BUCKET = "raw"


class MinioServer:
    """A MinIO of our own, with an empty bucket."""

    def __init__(self, folder: Path) -> None:
        """Starts it. Raises `SetupFailed` where `make setup-test` has not been run, `ProcessFailed`."""
        program = go_servers.minio_program()
        if not program.exists():
            raise SetupFailed("MinIO is missing: run make setup-test")
        data = folder / "data"
        data.mkdir(parents=True)
        endpoint = f"http://127.0.0.1:{free_port()}"
        self.server = Minio(endpoint=endpoint, access_key="penstock", secret_key="penstock-secret", data=data)
        for bucket in (BUCKET, RAW_BUCKET):
            self.server.make_bucket(bucket)
        env = {
            "MINIO_ROOT_USER": self.server.access_key,
            "MINIO_ROOT_PASSWORD": self.server.secret_key,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "MINIO_CALLHOME_ENABLE": "off",
            "HOME": str(folder),
        }
        address = endpoint.removeprefix("http://")
        command: list[str | Path] = [program, "server", "--quiet", "--address", address, data]
        self.process = Process(command, folder, name="minio", env=env)
        self.process.wait_until(lambda: _is_live(f"{endpoint}/minio/health/ready"), "MinIO")

    def stop(self) -> None:
        with self.process:
            pass

    def measure_puts(self, megabytes: int) -> dict[str, float]:
        """MB/s (10^6 bytes) of 8 MiB PUTs, four at a time, and the time of one 64 KiB PUT alone."""
        return asyncio.run(_puts(self.server, max(IN_FLIGHT, megabytes * 1_000_000 // LARGE_BYTES)))

    def measure_put_ms(self, object_bytes: int) -> float:
        """Median time of one PUT of this size alone, in milliseconds."""
        return asyncio.run(_alone(self.server, object_bytes))


def _client(server: Minio) -> S3Store:
    return S3Store(
        RAW_BUCKET,
        endpoint=server.endpoint,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        region="us-east-1",
        virtual_hosted_style_request=False,
        unsigned_payload=True,
        client_options={"allow_http": True},
    )


async def _alone(server: Minio, object_bytes: int) -> float:
    store = _client(server)
    times = await _one_by_one(store, bytes(object_bytes))
    return statistics.median(times)


async def _one_by_one(store: S3Store, body: bytes) -> list[float]:
    """Milliseconds of each of `SMALL_COUNT` PUTs; the objects are deleted."""
    times: list[float] = []
    names = [f"small-{number}" for number in range(SMALL_COUNT)]
    for name in names:
        began = time.perf_counter()
        await obstore.put_async(store, name, body, use_multipart=False)
        times.append((time.perf_counter() - began) * 1000)
    await obstore.delete_async(store, names)
    return times


async def _puts(server: Minio, count: int) -> dict[str, float]:
    store = _client(server)
    large, small = bytes(range(256)) * (LARGE_BYTES // 256), bytes(SMALL_BYTES)
    numbers = iter(range(count))

    async def put_large() -> None:
        for number in numbers:
            await obstore.put_async(store, f"large-{number}", large, use_multipart=False)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(put_large())
    seconds = time.perf_counter() - began
    times = await _one_by_one(store, small)
    await obstore.delete_async(store, [f"large-{number}" for number in range(count)])
    return {"mb_per_s": count * LARGE_BYTES / 1e6 / seconds, "p50_ms": statistics.median(times)}


def _is_live(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
