"""An agent in this process, on free ports of this machine, over a ledger and a store of the test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent.agent import Agent
from agent.bucket.cluster_identity import claim_bucket
from agent.bucket.disk_reserve import DiskReserves
from agent.config.settings import Settings
from agent.http.open_port import open_http_port
from agent.ledger.bootstrap import load_state
from agent.runtime.clock import SystemClock
from agent.runtime.ids import SystemIds
from agent.runtime.metrics import Metrics
from agent.runtime.start_waits import StartWaits
from agent.security.tls.agent_tls import AgentTls
from coordinator.ledger.port import Ledger
from storage.object_store import ObjectStore


@asynccontextmanager
async def serving_agent(
    settings: Settings, ledger: Ledger, store: ObjectStore, *, reserves: DiskReserves | None = None
) -> AsyncIterator[Agent]:
    """The agent, once it serves. It ends with the block; the caller drains it."""
    clock, metrics = SystemClock(), Metrics()
    identity = await claim_bucket(store, ledger, new_bucket_id="bucket")
    loaded = await load_state(ledger, store)
    tls, waits = AgentTls(settings, clock, metrics), StartWaits(clock)
    async with (
        open_http_port(settings, tls=tls, clock=clock, metrics=metrics, waits=waits) as http_server,
        Agent(
            settings=settings,
            identity=identity,
            ledger=ledger,
            store=store,
            follower=loaded.follower,
            clock=clock,
            ids=SystemIds(),
            metrics=metrics,
            tls=tls,
            http_server=http_server,
            waits=waits,
            reserves=reserves,
        ) as agent,
    ):
        yield agent
