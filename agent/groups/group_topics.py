"""Topics of the state as consumer groups look them up: by name, by id, and as the set of names.

In: the applied state. Out: a lookup that stays the same object while no topic changes, and a number that counts the
changes of the set of names, for regular expressions.
"""

from functools import partial

from agent.ledger.ledger_client import LedgerClient
from coordinator.groups.consumer_group_copy import FindTopic
from coordinator.state.state import NO_POSITION
from protocol.types import TopicId


class GroupTopics:
    """The topics of an agent's state."""

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._finder: FindTopic = partial(self._find)
        self._finder_at = NO_POSITION
        """The position of the change of topics since which `_finder` is the lookup."""
        self._names: frozenset[str] = frozenset()
        self._names_at = NO_POSITION
        """The position of the change of topics at which `_names` was read."""
        self.names_number = 0
        """The number of changes of the set of topic names that `count_names` found."""

    @property
    def finder(self) -> FindTopic:
        """A lookup in the topics. It is the same object as long as no topic changes: groups compare it by identity."""
        topics_at = self._ledger.state.topics_at
        if topics_at != self._finder_at:
            self._finder_at, self._finder = topics_at, partial(self._find)
        return self._finder

    def find(self, name: str) -> tuple[TopicId, int] | None:
        """The topic's id and its number of partitions."""
        return self._find(name)

    def name_of(self, topic_id: TopicId) -> str | None:
        topic = self._ledger.state.topics.get(topic_id)
        return None if topic is None else topic.name

    @property
    def has_uncounted_changes(self) -> bool:
        """Whether topics have changed since the last `count_names`."""
        return self._ledger.state.topics_at != self._names_at

    def count_names(self) -> None:
        """Count a change of the set of topic names."""
        self._names_at = self._ledger.state.topics_at
        names = frozenset(self._ledger.state.topic_ids)
        if names != self._names:
            self._names = names
            self.names_number += 1

    def _find(self, name: str) -> tuple[TopicId, int] | None:
        state = self._ledger.state
        topic_id = state.topic_ids.get(name)
        return None if topic_id is None else (topic_id, len(state.topics[topic_id].partitions))
