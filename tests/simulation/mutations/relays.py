"""What guards groups where agents relay their requests, switched off.

Rule: as `tests.simulation.mutations.safety_rules`, which has them from here.
"""

import struct
from collections.abc import Iterator, Sequence

from agent.request.services import Answer, Request, Services
from agent.server.relay.client_relays import ClientRelays
from agent.server.relay.relays import Relays, RelayTarget
from protocol.api_versions import ApiKey
from protocol.relay import group_id_of
from protocol.wire import INT32
from storage.object_store import Buffer
from tests.simulation.mutations.groups import (
    MOVES,
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
        if frame.api_key != ApiKey.HEARTBEAT or self._relays.target(services, request) is None:
            return await relay_right(self, services, request)
        answer: Sequence[Buffer] = [INT32.pack(frame.correlation_id) + struct.pack(">ih", 0, 0)]
        return answer

    relay_right = ClientRelays._relay
    with patched(ClientRelays, "_relay", relay):
        yield


@mutation(*MOVES, where=relays_heartbeats)
def s13_requests_are_relayed_to_the_coordinator_of_before() -> Iterator[None]:
    """An agent relays a group's requests to whoever coordinated it first, who answers although its claim is over."""

    def target(self: Relays, services: Services, request: Request) -> RelayTarget | None:
        found = target_right(self, services, request)
        return None if found is None else first.setdefault((self, group_id_of(request.frame)), found)

    first: dict[tuple[Relays, str | None], RelayTarget] = {}
    target_right = Relays.target
    with patched(Relays, "target", target), s13_a_coordinator_goes_on_after_its_claim_is_over():
        yield
