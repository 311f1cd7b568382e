"""Who is responsible for what: highest-random-weight ("rendezvous") hashing over the live agents.

Rule: pure, and the same in every process: a weight depends on the key and the agent's name alone. So all agents agree
without talking, and when one comes or goes only what it gets or had moves. An agent that drains is asked for nothing
while there is another one. Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (1998);
the mixing function is that of SplitMix64.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coordinator.commands.admin import Replicas
from coordinator.state.state import SessionState
from protocol.limits import PLACEMENTS_CACHED_MAX
from protocol.types import SessionId, TopicId

_Words = npt.NDArray[np.uint64]
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


class Assignment(NamedTuple):
    """Node ids for one partition: whom its clients ask first; the agent of each zone, the leader before others, or what
    was assigned by hand, in that order; and who of these is not there."""

    leader: int
    replicas: tuple[int, ...]
    offline: tuple[int, ...] = ()

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The replicas that are there: each sees all that is in the bucket."""
        return tuple(node for node in self.replicas if node not in self.offline) if self.offline else self.replicas


def owner_of(key: bytes, sessions: Mapping[SessionId, SessionState]) -> SessionId | None:
    """The live session that is responsible for `key`; None where there is none. Zones do not matter."""
    (owner,) = owners_of((key,), sessions)
    return owner


def owners_of(keys: Sequence[bytes], sessions: Mapping[SessionId, SessionState]) -> Sequence[SessionId | None]:
    """The same of each of the keys, in their order; many together take little more time than one."""
    members = _members(sessions)
    if not members:
        return (None,) * len(keys)
    words = np.array([_word(key) for key in keys], dtype=np.uint64)
    weights = _weights(words, _seeds(session for _, session in members))
    rows: list[int] = weights.argmax(axis=0).tolist()
    return [members[row][0] for row in rows]


def transaction_key(transactional_id: str) -> bytes:
    """The key for `owner_of` that names a transactional id's coordinator.

    The prefix keeps transactional ids apart from group ids: equal ids of the two kinds have independent coordinators.
    """
    return b"transaction " + transactional_id.encode()


class Placement:
    """Where clients find partitions, for one set of live sessions. Makes each topic's answer once."""

    def __init__(self, sessions: Mapping[SessionId, SessionState]) -> None:
        members = [session for _, session in _members(sessions)]
        self._seeds = _seeds(members)
        self._nodes = np.array([session.node_id for session in members])
        self._zone_of = {session.node_id: session.zone for session in members}
        zones = sorted({session.zone for session in members if session.zone is not None})
        self._rows = {zone: np.array([row for row, s in enumerate(members) if s.zone == zone]) for zone in zones}
        self._made: dict[tuple[TopicId, str | None], Sequence[Assignment]] = {}
        self._shared: dict[Assignment, Assignment] = {}

    def assignments(self, topic_id: TopicId, partition_count: int, zone: str | None) -> Sequence[Assignment]:
        """One for each partition, for clients in `zone`: None, or a zone without an agent, is anywhere.

        Equal assignments are one object. Empty where no agent lives.
        """
        if not len(self._nodes):
            return ()
        key = (topic_id, zone if zone in self._rows else None)
        assigned = self._made.get(key, ())
        if len(assigned) < partition_count:
            if len(self._made) >= PLACEMENTS_CACHED_MAX:
                self._made.clear()
            assigned = self._made[key] = self._assign(topic_id, partition_count, key[1])
        return assigned[:partition_count] if len(assigned) > partition_count else assigned

    def by_hand(self, replicas: Replicas, zone: str | None, otherwise: Assignment) -> Assignment:
        """The assignment of a partition whose replicas were set by an operator.

        The first live one leads, those of the client's zone before others. Where none is live, the leader of
        `otherwise` leads: any agent serves any partition.
        """
        living = [node for node in replicas if node in self._zone_of]
        near = [node for node in living if zone is not None and self._zone_of[node] == zone]
        leader = (near or living or [otherwise.leader])[0]
        return self._share(Assignment(leader, replicas, tuple(node for node in replicas if node not in living)))

    def is_in(self, zone: str, node: int) -> bool:
        """Whether the node lives in that zone."""
        return self._zone_of.get(node) == zone

    @property
    def zones(self) -> Sequence[str]:
        """In which an agent lives, by name."""
        return tuple(self._rows)

    def _assign(self, topic_id: TopicId, partition_count: int, zone: str | None) -> list[Assignment]:
        keys = np.arange(partition_count, dtype=np.uint64) * _STEP + np.uint64(_word(topic_id))
        weights = _weights(keys, self._seeds)
        by_zone = {name: self._nodes[rows[weights[rows].argmax(axis=0)]] for name, rows in self._rows.items()}
        leaders = by_zone[zone] if zone is not None else self._nodes[weights.argmax(axis=0)]
        each = zip(leaders.tolist(), *(nodes.tolist() for nodes in by_zone.values()), strict=True)
        return [self._share(Assignment(row[0], tuple(dict.fromkeys(row)))) for row in each]

    def _share(self, assignment: Assignment) -> Assignment:
        return self._shared.setdefault(assignment, assignment)


def staying(sessions: Mapping[SessionId, SessionState]) -> Mapping[SessionId, SessionState]:
    """Who may be asked: those that do not drain, or all where all do."""
    return {session_id: session for session_id, session in sessions.items() if not session.is_draining} or sessions


def _members(sessions: Mapping[SessionId, SessionState]) -> list[tuple[SessionId, SessionState]]:
    return sorted(staying(sessions).items(), key=lambda member: member[1].name)


def _seeds(sessions: Iterable[SessionState]) -> _Words:
    """A column of one word for each agent."""
    words = np.array([_word(session.name.encode()) for session in sessions], dtype=np.uint64)
    return words.reshape(-1, 1)


def _weights(keys: _Words, seeds: _Words) -> _Words:
    """A row for each agent, a column for each key."""
    return _mixed(seeds ^ _mixed(keys))


def _word(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def _mixed(words: _Words) -> _Words:
    """Every bit of a word spread over all of them; products wrap around."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))
