"""In which folder of the bucket a topic's table lies.

Rule: pure. A folder has the topic's name and id. A name that makes it longer than file systems allow is shortened; the
id makes it unique. A table never moves: once it has metadata, its folder is the one where that lies, since entries,
references and catalogs name it.
"""

from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.state.state import ClusterState, TopicState
from storage.refs import name_in_folder, short_name, topic_folder


def folder_name(state: ClusterState, topic: TopicState) -> str:
    """The topic's name in the folder of its table."""
    if topic.table is not None:
        return name_in_folder(topic.table.metadata_key)
    # S3: agents of older rules reject files elsewhere than under the whole name.
    return short_name(topic.name) if state.rules_version >= RULES_CHECKED_STORAGE else topic.name


def lake_folders(state: ClusterState, topic: TopicState) -> tuple[str, ...]:
    """The folders in which a topic's objects may lie: that of its table first, then that of its whole name, which held
    them under older rules."""
    names = dict.fromkeys((folder_name(state, topic), topic.name))
    return tuple(topic_folder(name, topic.topic_id) for name in names)
