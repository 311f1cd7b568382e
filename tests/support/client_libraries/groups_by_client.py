"""Groups of two members, one for each client library and protocol of groups, which read one topic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from tests.support.client_libraries.group_members import (
    ConfluentMember,
    FranzGoMember,
    JavaMember,
    KafkaPythonMember,
    Member,
)
from tests.support.services.java import JavaProgram

JAVA_SOURCE = Path(__file__).parents[2] / "integration" / "java" / "GroupMember.java"


@dataclass(frozen=True, slots=True)
class LibraryGroup:
    """Two members of one library."""

    name: str
    members: Sequence[Member]
    partitions: int
    """Of the topic."""

    def is_shared_out(self) -> bool:
        shares = [member.partitions for member in self.members]
        return all(shares) and sorted(chain(*shares)) == list(range(self.partitions))

    @property
    def read(self) -> list[tuple[int, int]]:
        """Partition and offset of every record, each as often as a member got it."""
        return [place for member in self.members for place in member.read]

    def has_read(self, count: int) -> bool:
        """Whether it read so many records at least, each counted once."""
        return len(set(self.read)) >= count

    @property
    def losses_count(self) -> int:
        """How often a member had to give up a partition."""
        return sum(len(member.losses) for member in self.members)


def library_groups(
    bootstrap: str, topic: str, partitions: int, *, program: JavaProgram, folder: Path
) -> list[LibraryGroup]:
    """Groups of librdkafka, kafka-python, Java and franz-go, whose members are still to be entered.

    `program`: `JAVA_SOURCE`, compiled. `folder`: for what members in processes of their own write.
    """
    java = partial(JavaMember, program=program, folder=folder)
    ways: dict[str, Callable[[str], Member]] = {
        "librdkafka": lambda group: ConfluentMember(bootstrap, group, topic),
        "librdkafka-consumer": lambda group: ConfluentMember(bootstrap, group, topic, group_protocol="consumer"),
        "kafka-python": lambda group: KafkaPythonMember(bootstrap, group, topic),
        "java": lambda group: java(bootstrap, group, topic),
        "java-consumer": lambda group: java(bootstrap, group, topic, "group.protocol=consumer"),
        "franz-go": lambda group: FranzGoMember(bootstrap, group, topic, folder=folder),
    }
    return [LibraryGroup(name, [new(name) for _ in range(2)], partitions) for name, new in ways.items()]
