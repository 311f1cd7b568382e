"""What guards the versions of the rules, and an agent's way out, switched off: safety rules S3 and S8.

Rule: as `tests.simulation.mutations.safety_rules`, which has them from here.
"""

from collections.abc import Iterator

from agent.broker import Broker
from agent.maintenance.rules_version import RulesVersionUpgrade
from coordinator import snapshot
from coordinator.apply import apply as apply_module
from coordinator.codec import codec as command_codec
from coordinator.commands.commands import Done, Outcome, RaiseRules
from coordinator.commands.forms import WireStruct, in_form, parts_in_form
from coordinator.commands.rules import RULES_NEWEST
from coordinator.state.state import ClusterState
from tests.simulation.faults.fault_names import FaultName
from tests.simulation.mutations.mutation import mutation
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import Plan


def takes_snapshots(plan: Plan) -> bool:
    return plan.has_older_agents and plan.snapshot_entries < 100


@mutation(where=takes_snapshots)
def s3_what_is_written_has_the_form_of_its_writer() -> Iterator[None]:
    """An agent writes entries and snapshots as it knows them best, whatever the others can read."""

    def newest(value: object, rules_version: int) -> object:
        return in_form(value, RULES_NEWEST)

    def newest_parts(value: WireStruct, rules_version: int) -> Iterator[tuple[str, object, bool]]:
        return parts_in_form(value, RULES_NEWEST)

    with (
        patched(command_codec, "in_form", newest),
        patched(snapshot, "in_form", newest),
        patched(snapshot, "parts_in_form", newest_parts),
    ):
        yield


@mutation(where=lambda plan: plan.has_older_agents)
def s3_newer_rules_do_not_wait_for_older_agents() -> Iterator[None]:
    """They come into force when the first agent knows them."""

    def raise_rules(state: ClusterState, command: RaiseRules) -> Outcome:
        state.rules_version = max(state.rules_version, command.rules_version)
        return Done()

    async def upgrade(self: RulesVersionUpgrade) -> bool:
        known = max(session.rules_version for session in self._ledger.state.sessions.values())
        if known > self._ledger.state.rules_version:
            await self._ledger.propose(RaiseRules(rules_version=known))
        return False

    with patched(apply_module, "raise_rules", raise_rules), patched(RulesVersionUpgrade, "upgrade", upgrade):
        yield


@mutation(FaultName.RESTART, where=lambda plan: plan.store_delay_s > 0.01 or not plan.is_store_cheap)
def s8_others_lead_before_what_a_stopping_agent_took_is_committed() -> Iterator[None]:
    """A client's next batch overtakes those that wait in the agent it is sent away from."""

    async def commit_accepted(self: Broker, seconds_max: float) -> None:
        return None

    with patched(Broker, "_commit_accepted", commit_accepted):
        yield
