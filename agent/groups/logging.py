"""Log lines about groups of either protocol that this agent loads, changes and hands over.

There is one line for each round of loading and each change, never one for each request. Names that clients chose are
shortened.
"""

import logging
from collections.abc import Collection, Sequence
from itertools import islice

from coordinator.configs.config_types import shorten
from protocol.limits import GROUP_NAMES_LISTED_MAX

log = logging.getLogger(__name__)


def first_names(names: Collection[str]) -> str:
    """The first GROUP_NAMES_LISTED_MAX names, and the number of the others."""
    shown = ",".join(shorten(name) for name in islice(names, GROUP_NAMES_LISTED_MAX))
    more = len(names) - GROUP_NAMES_LISTED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def log_loaded(group_ids: list[str], *, protocol: str) -> None:
    """Log the groups with members that this agent has loaded, and clear the list."""
    if group_ids:
        extra = {"protocol": protocol, "groups": len(group_ids), "names": first_names(group_ids)}
        log.info("this agent coordinates groups whose last coordinator is gone, or stops", extra=extra)
        group_ids.clear()


def log_handed_over(group_ids: Collection[str], *, protocol: str) -> None:
    """Log the groups of an agent that stops."""
    if group_ids:
        extra = {"protocol": protocol, "groups": len(group_ids), "names": first_names(group_ids)}
        log.info("this agent hands over its groups: their members find the next coordinator", extra=extra)


def log_changes(group_id: str, epochs: tuple[int, int], changes: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Log changes of a group of the consumer protocol.

    Args:
        group_id: the group.
        epochs: the group's epoch, and that of its target assignment.
        changes: each change, and the ids of the members that it concerns.
    """
    if changes:
        what = "; ".join(f"{change}: {first_names(ids)}" if ids else change for change, ids in changes)
        extra = {"group": group_id, "epoch": epochs[0], "target_epoch": epochs[1], "what": what}
        log.info("a group changes", extra=extra)


def log_instance_rejected(group_id: str, instance_id: str, client_id: str, reason: str) -> None:
    """Log a client that was rejected because another client has its group.instance.id."""
    log.warning(
        "rejected a client for its group.instance.id, which another client has; clients end on this error. Give each "
        "client its own, or end the other client first (logged once)",
        extra={
            "group": group_id,
            "instance": shorten(instance_id),
            "client": shorten(client_id),
            "reason": shorten(reason),
        },
    )
