"""What guards groups where agents relay their requests, switched off.

Rule: as `tests.simulation.mutations.safety_rules`, which has them from here.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent.handlers import offset_commit
from agent.request.connection_epochs import RelayedEpochs
from agent.request.services import Answer, Request, Services
from agent.server.relay import client_relays
from agent.server.relay.client_relays import ClientRelays
from agent.server.relay.relays import Relays, RelayTarget
from coordinator.commands.transaction import ConnectionEpoch
from protocol.api_versions import ApiKey
from protocol.relay import ClientEpoch, Introduction, group_id_of
from protocol.types import SessionId
from protocol.wire import INT32
from storage.object_store import Buffer
from tests.simulation.mutations.groups import (
    has_classic,
    s13_a_coordinator_goes_on_after_its_claim_is_over,
)
from tests.simulation.mutations.mutation import mutation
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import Plan


def relays_heartbeats(plan: Plan) -> bool:
    return plan.has_one_address and has_classic(plan)


@mutation(where=relays_heartbeats)
def s13_a_relay_answers_heartbeats_itself() -> Iterator[None]:
    """An agent tells members of groups that it does not coordinate that they may stay."""

    async def relay(self: ClientRelays, services: Services, request: Request) -> Answer:
        frame = request.frame
        if frame.api_key != ApiKey.HEARTBEAT or await self._relays.target(services, request) is None:
            return await relay_right(self, services, request)
        answer: Sequence[Buffer] = [INT32.pack(frame.correlation_id) + struct.pack(">ih", 0, 0)]
        return answer

    relay_right = ClientRelays._relay
    with patched(ClientRelays, "_relay", relay):
        yield


@mutation(is_scripted=True)
def s13_requests_are_relayed_to_the_coordinator_of_before() -> Iterator[None]:
    """An agent relays a group's requests to whoever coordinated it first, who answers although its claim is over."""

    async def target(self: Relays, services: Services, request: Request) -> RelayTarget | None:
        found = await target_right(self, services, request)
        return None if found is None else first.setdefault((self, group_id_of(request.frame)), found)

    first: dict[tuple[Relays, str | None], RelayTarget] = {}
    target_right = Relays.target
    with patched(Relays, "target", target), s13_a_coordinator_goes_on_after_its_claim_is_over():
        yield


@mutation(is_scripted=True)
def s23_a_commit_is_made_however_long_it_waited() -> Iterator[None]:
    """Behind requests that were not answered, until its client has committed more elsewhere."""

    def never(services: Services, request: Request) -> bool:
        return False

    with patched(client_relays, "is_overdue", never), patched(offset_commit, "is_overdue", never):
        yield


@mutation(is_scripted=True)
def s7_a_relayed_connection_is_as_old_as_its_relay() -> Iterator[None]:
    """An agent introduces a client as if it had connected when it is relayed for the first time."""

    async def introduced(self: ClientRelays, services: Services, request: Request) -> Introduction:
        is_first = self._introduction is None
        found = await introduced_right(self, services, request)
        if is_first and found.epoch is not None:
            found = self._introduction = replace(found, epoch=found.epoch._replace(position=services.state.position))
        return found

    introduced_right = ClientRelays._introduced
    with patched(ClientRelays, "_introduced", introduced):
        yield


@mutation(is_scripted=True)
def s7_numbers_order_the_connections_of_two_agents() -> Iterator[None]:
    """Each agent numbers its own, and a coordinator compares them at one position."""

    def rank(self: RelayedEpochs, epoch: ClientEpoch) -> ConnectionEpoch | None:
        return rank_right(self, epoch._replace(session=SessionId(0)))

    rank_right = RelayedEpochs.rank
    with patched(RelayedEpochs, "rank", rank):
        yield
