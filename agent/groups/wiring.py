"""Wires the coordinators of groups, over the claims that they share."""

from agent.context import AgentContext
from agent.groups.classic_coordinator import ClassicGroupCoordinator
from agent.groups.consumer_coordinator import ConsumerGroupCoordinator
from agent.groups.group_ledger import GroupLedger
from agent.security.rights import ALL_RIGHTS


class GroupServices:
    """Every agent has them: for groups of either protocol, and their offsets."""

    def __init__(self, context: AgentContext, *, is_authorizer_enabled: bool) -> None:
        self.ledger = GroupLedger(ledger=context.ledger, clock=context.clock, broker_configs=context.broker_configs)
        self.classic = ClassicGroupCoordinator(context, group_ledger=self.ledger)
        self.consumer = ConsumerGroupCoordinator(
            context,
            group_ledger=self.ledger,
            classic=self.classic,
            default_rights=None if is_authorizer_enabled else ALL_RIGHTS,
        )
        self.classic.consumer_groups = self.consumer
        context.metrics.groups.set_function(lambda: self.classic.groups_count + self.consumer.groups_count)
        context.metrics.group_rebalances.set_function(lambda: self.classic.generations_count)
        context.metrics.offsets_committed.set_function(lambda: self.ledger.offsets_committed_count)

    def stop(self) -> None:
        """Redirect the members of all groups to other agents."""
        self.classic.stop()
        self.consumer.stop()
