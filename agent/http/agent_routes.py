"""The routes of `/api/agents`: the agents of the cluster, and their drains on request.

Any agent answers for all of them: the list is in the state, and a request for a drain is an entry of the ledger. So no
agent asks another one, by whatever address and rights.
"""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.api_requests import ApiError, json_body
from agent.http.change_audit import CLUSTER, announce_change
from agent.http.services import AdminServices
from agent.views.agents import agent_rows, rules_view
from coordinator.commands.agents import RequestDrain
from coordinator.commands.commands import Rejected
from coordinator.commands.rules import RULES_AGENTS
from coordinator.ledger.port import OutcomeUnknown
from protocol.auth.operations import Operation
from protocol.errors import ErrorCode
from protocol.limits import LEDGER_WAIT_SECONDS_MAX, REQUESTED_DRAIN_POLL_SECONDS, REQUESTED_DRAIN_WAIT_SECONDS
from protocol.types import SessionId

LIST_REMEDY = "list the agents with penstock agents list"


class AgentRoutes:
    """The handlers. The guard of the routes has asked for the right on the cluster."""

    def __init__(self, services: AdminServices) -> None:
        self._ledger = services.ledger
        self._clock = services.clock

    async def agents(self, _: Request) -> Response:
        """All live agents, and the versions of the rules."""
        await self._ledger.barrier()
        state = self._ledger.state
        return JSONResponse({**rules_view(state), "agents": agent_rows(state)})

    async def drain(self, request: Request) -> Response:
        """Ask an agent to drain, and wait some seconds for its beginning. `is_draining`: whether it has begun."""
        await json_body(request)
        await self._ledger.barrier()
        name = request.path_params["name"]
        session_id = self._find(name)
        announce_change(request, CLUSTER, Operation.ALTER, f"the agent {name} asked to drain")
        try:
            async with self._clock.timeout(LEDGER_WAIT_SECONDS_MAX):
                outcome = await self._ledger.propose(RequestDrain(session=session_id))
        except (OutcomeUnknown, TimeoutError) as error:
            reason = str(error) or f"the ledger does not answer for {LEDGER_WAIT_SECONDS_MAX:.0f} s"
            remedy = "penstock agents list shows whether it counted; else send the request again"
            raise ApiError(503, "outcome_unknown", f"the request may have been taken: {reason}", remedy) from error
        if isinstance(outcome, Rejected):
            raise _error_of(name, outcome)
        return JSONResponse({"agent": name, "is_draining": await self._begins_to_drain(session_id)})

    def _find(self, name: str) -> SessionId:
        """The live session of the agent. Raises `ApiError` where there is none, or older rules are in force."""
        state = self._ledger.state
        numbers = [number for number, session in state.sessions.items() if session.name == name]
        if not numbers:
            raise _no_such_agent(name)
        if state.rules_version < RULES_AGENTS:
            message = f"rules {state.rules_version} are in force, and drains on request come with rules {RULES_AGENTS}"
            raise ApiError(
                409, "older_rules", message, "send SIGTERM to the agent, or finish the upgrade of the cluster"
            )
        return numbers[0]

    async def _begins_to_drain(self, session_id: SessionId) -> bool:
        """Whether the session drains after some seconds. One that ended does not: its successor has not been asked."""
        end_s = self._clock.monotonic_s() + REQUESTED_DRAIN_WAIT_SECONDS
        while (session := self._ledger.state.sessions.get(session_id)) is not None:
            if session.is_draining or self._clock.monotonic_s() >= end_s:
                return session.is_draining
            await self._clock.sleep(REQUESTED_DRAIN_POLL_SECONDS)
        return False


def _no_such_agent(name: str) -> ApiError:
    return ApiError(404, "unknown_agent", f"no live agent has the name {name!r}", LIST_REMEDY)


def _error_of(name: str, rejected: Rejected) -> ApiError:
    match rejected.error_code:
        case ErrorCode.broker_id_not_registered:
            return _no_such_agent(name)
        case ErrorCode.invalid_request:
            return ApiError(409, "last_agent", rejected.reason, "start another agent first, or restart one that drains")
        case _:
            return ApiError(503, "unavailable", rejected.reason, "send the request again later")
