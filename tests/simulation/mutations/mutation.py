"""What a mutation is, and the list of all, which `tests.simulation.mutations.safety_rules` and its likes of losses and
groups fill.

Rule: one is entered where it is defined, under its function's name.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from tests.simulation.faults.fault_names import FaultName
from tests.simulation.plan import Plan

Switch = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A rule that is switched off, and in which worlds that may be seen."""

    switch_off: Switch
    may_show: Callable[[Plan], bool]
    is_scripted: bool
    """Whether drawn worlds hardly ever show it, or late, and one of `tests.simulation.test_scripted_rules` does."""


MUTATIONS: dict[str, Mutation] = {}


def mutation(
    *faults: FaultName, where: Callable[[Plan], bool] = lambda plan: True, is_scripted: bool = False
) -> Callable[[Callable[[], Iterator[None]]], Switch]:
    """Enter it under its function's name. It may show where one of `faults` happens (if any are named), and `where`."""

    def enter(function: Callable[[], Iterator[None]]) -> Switch:
        made = contextmanager(function)
        MUTATIONS[function.__name__] = Mutation(
            made,
            lambda plan: where(plan) and (not faults or any(fault in plan.faults for fault in faults)),
            is_scripted,
        )
        return made

    return enter


def drawn_mutations() -> list[str]:
    """The names of those for which drawn worlds are searched."""
    return [name for name, entered in MUTATIONS.items() if not entered.is_scripted]


LEASE_LOST = (FaultName.CRASH, FaultName.PAUSE, FaultName.LEDGER_CUT, FaultName.LEDGER_SHAKY)


def archives_soon(plan: Plan) -> bool:
    """Whether intake is replaced, and released, while others work."""
    return plan.archive_interval_s < 10
