"""Log lines about consumer groups, of either protocol, that come to this agent, change, and go.

Rule: one line per round or change, never one per request; names that clients chose are cut short.
"""

import logging
from collections.abc import Collection, Sequence
from itertools import islice

from coordinator.configs.config_types import shorten
from protocol.limits import GROUP_NAMES_LISTED_MAX

log = logging.getLogger(__name__)


def first_names(names: Collection[str]) -> str:
    """A few of them, and how many more there are."""
    shown = ",".join(shorten(name) for name in islice(names, GROUP_NAMES_LISTED_MAX))
    more = len(names) - GROUP_NAMES_LISTED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def log_loaded(group_ids: list[str], *, protocol: str) -> None:
    """This agent holds groups now that had members already; the list is empty then."""
    if group_ids:
        extra = {"protocol": protocol, "groups": len(group_ids), "names": first_names(group_ids)}
        log.info(
            "coordinates groups now that had members before: their last coordinator is gone, or stops", extra=extra
        )
        group_ids.clear()


def log_handed_over(group_ids: Collection[str], *, protocol: str) -> None:
    """This agent stops."""
    if group_ids:
        extra = {"protocol": protocol, "groups": len(group_ids), "names": first_names(group_ids)}
        log.info("hands over its groups: members find their next coordinator", extra=extra)


def log_changes(group_id: str, epochs: tuple[int, int], changes: Sequence[tuple[str, Sequence[str]]]) -> None:
    """A group of the consumer protocol has changed: in what respect, and whom each concerns, if anybody.

    `epochs`: the group's, and that of its target assignment.
    """
    if changes:
        what = "; ".join(f"{change}: {first_names(ids)}" if ids else change for change, ids in changes)
        extra = {"group": group_id, "epoch": epochs[0], "target_epoch": epochs[1], "what": what}
        log.info("a group changes", extra=extra)


def log_instance_rejected(group_id: str, instance_id: str, client_id: str, reason: str) -> None:
    """A client has a group.instance.id that another one has."""
    log.warning(
        "refused a client for its group.instance.id, which another one has, and clients end on that: give each its "
        "own, or end the other one first; told once",
        extra={
            "group": group_id,
            "instance": shorten(instance_id),
            "client": shorten(client_id),
            "reason": shorten(reason),
        },
    )
