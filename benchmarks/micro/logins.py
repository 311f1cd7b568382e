"""Logins at one broker: processor time, a thousand clients at once, and whether answer times show who exists.

Run: `.venv/bin/python -m benchmarks.micro.logins [--logins 1000] [--clients 1000]`. One JSON line a row on stdout.
Goals: a login by SCRAM in 0.3 ms of the server's processor time; a thousand clients in 15 s, while another one waits
for at most 50 ms; unknown users are slower than known ones as often as faster (0.5).
The client beside the thousand has a process of its own.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.measure.logins import (
    MECHANISMS,
    SETTINGS,
    USERS_FILE,
    client_of,
    connect_many,
    failure_times,
    log_in_many,
    reconnect,
    share_slower,
)
from benchmarks.measure.process_usage import cpu_seconds
from tests.support.services.local_services import Penstock, PenstockFactory

PAIRS = 200
WARM_UP = 50
LANES = 8


def show(what: str, value: float, unit: str) -> None:
    print(json.dumps({"what": what, "value": round(value, 3), "unit": unit}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logins", type=int, default=1_000)
    parser.add_argument("--clients", type=int, default=1_000)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-logins-")))
        (folder / "users.toml").write_text(USERS_FILE)
        start = PenstockFactory(folder=folder, stack=stack)
        broker = start(
            listen="SASL_PLAINTEXT://127.0.0.1:0",
            options={"bootstrap-users": str(folder / "users.toml")},
            settings=SETTINGS,
        )
        asyncio.run(measure(broker, start(), options.logins, options.clients))


async def measure(broker: Penstock, without_logins: Penstock, logins: int, clients: int) -> None:
    """Print the rows."""

    async def of_server_ms(measured: Penstock, work: Callable[[int], Awaitable[None]]) -> float:
        """The server's processor time for one piece of work, of several clients at once."""
        await work(WARM_UP)
        began_s = cpu_seconds(measured.process.pid)
        await asyncio.gather(*(work(logins // LANES) for _ in range(LANES)))
        return (cpu_seconds(measured.process.pid) - began_s) / (logins // LANES * LANES) * 1e3

    connection_ms = await of_server_ms(without_logins, partial(connect_many, without_logins.bootstrap))
    show("server CPU of a connection with three requests and no login", connection_ms, "ms")
    for mechanism in MECHANISMS:
        client = client_of(mechanism)
        taken_ms = await of_server_ms(broker, partial(log_in_many, broker.bootstrap, client, mechanism))
        show(f"server CPU of a connection that logs in, {mechanism}", taken_ms, "ms")
        show(f"... beyond one without a login, {mechanism}", taken_ms - connection_ms, "ms")
    for mechanism in MECHANISMS:
        found = await reconnect(broker.bootstrap, mechanism, clients)
        show(f"{clients} clients log in at once, {mechanism}", found.seconds, "s")
        show(f"... another client meanwhile, p99, {mechanism}", found.beside_p99_ms, "ms")
        show(f"... another client meanwhile, worst, {mechanism}", found.beside_worst_ms, "ms")
    for mechanism in MECHANISMS:
        times = await failure_times(broker.bootstrap, mechanism, PAIRS)
        for name, known, unknown in (
            ("first", [each.first_s for each in times.known], [each.first_s for each in times.unknown]),
            ("last", [each.last_s for each in times.known], [each.last_s for each in times.unknown]),
        ):
            share = share_slower(known, unknown)
            show(f"unknown users slower, {name} answer, {mechanism}", share, "of pairs")
            difference = statistics.median(unknown) - statistics.median(known)
            show(f"... medians differ, {mechanism}", difference * 1e6, "us")


if __name__ == "__main__":
    main()
