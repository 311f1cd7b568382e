"""How simulated leaders of classic groups divide partitions: range, and cooperative as KIP-429 has it.

Rule: pure, and the same for the same members. Source: org.apache.kafka.clients.consumer.RangeAssignor,
CooperativeStickyAssignor and internals.AbstractStickyAssignor (Kafka 4.3).
"""

from collections.abc import Mapping, Sequence

from tests.simulation.clients.group_wire import Subscription, by_topic
from tests.simulation.clients.wire import Place

RANGE, COOPERATIVE = "range", "cooperative-sticky"

Assignments = dict[str, list[Place]]
"""By member id."""


def assign_ranges(members: Sequence[str], places: Sequence[Place]) -> Assignments:
    """Of each topic a run of partitions for each member; the first ones get what is over."""
    assigned: Assignments = {member_id: [] for member_id in sorted(members)}
    for topic, partitions in by_topic(places).items():
        each, over = divmod(len(partitions), len(assigned))
        for row, found in enumerate(assigned.values()):
            first = row * each + min(row, over)
            found += [(topic, partition) for partition in partitions[first : first + each + (row < over)]]
    return assigned


def assign_cooperatively(members: Mapping[str, Subscription], places: Sequence[Place]) -> Assignments:
    """Everybody keeps what is theirs, but for what is too much; that is given away once they let go of it.

    Where several say that they have a partition, the one that has it since the newest generation is right (KIP-792).
    """
    owners = _owners(members)
    least, larger_count = divmod(len(places), len(members))
    wanted: Assignments = {member_id: [] for member_id in sorted(members)}
    left: list[Place] = []
    for place in sorted(places):
        owner = owners.get(place)
        if owner is None or len(wanted[owner]) > least or (len(wanted[owner]) == least and not larger_count):
            left.append(place)
            continue
        larger_count -= len(wanted[owner]) == least
        wanted[owner].append(place)
    for place in left:
        wanted[min(wanted, key=lambda member_id: (len(wanted[member_id]), member_id))].append(place)
    return {
        member_id: sorted(place for place in found if owners.get(place, member_id) == member_id)
        for member_id, found in wanted.items()
    }


def _owners(members: Mapping[str, Subscription]) -> dict[Place, str]:
    owners: dict[Place, str] = {}
    for member_id, told in sorted(members.items(), key=lambda item: (item[1].generation, item[0])):
        owners.update(dict.fromkeys(told.owned, member_id))
    return owners
