"""Compares what members of groups are told with what they did and with what the ledger says.

Rule: what may be judged at once is judged at once. A group skips nothing: whoever is given a partition begins where the
group has come to, and that was processed by some member before it was committed. A record is processed again only where
its commit had not been acknowledged: an OffsetFetch tells what was true at some moment between question and answer, and
an acknowledged commit is true by then (safety rule S4). Generations that members are told of never go backwards; within
one, a partition is one member's; once somebody was told of a newer one, no commit of an older one is taken (S13).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from protocol.errors import ErrorCode
from protocol.limits import LEDGER_SESSION_SECONDS
from tests.simulation.audit.group_entries import GroupEntries, GroupPlace
from tests.simulation.audit.truth import Truth
from tests.simulation.clients.wire import Place
from tests.simulation.history import History

STALE_SECONDS_MAX = LEDGER_SESSION_SECONDS
"""How long before a heartbeat was sent there may have been a newer generation, or another coordinator: the answer comes
later, and what the coordinator knows then is no older than the lease.
"""
GONE = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.group_id_not_found})
"""What a member is told that is none any more."""
FINAL = frozenset(
    {
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_instance_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.stale_member_epoch,
        ErrorCode.fenced_member_epoch,
        ErrorCode.group_id_not_found,
    }
)
"""What a commit is told that surely did not happen."""


@dataclass(slots=True, kw_only=True)
class Commit:
    """One OffsetCommit on its way."""

    group_id: str
    who: str
    generation: int
    offsets: Mapping[Place, int]
    newest: int
    """The newest generation that anybody was told of when it was sent."""
    asked_s: float
    moved: frozenset[Place] = frozenset()
    """Partitions that others had been given by then, under the consumer protocol."""


class GroupAuditor:
    """Of one run."""

    def __init__(self, history: History, truth: Truth, now_s: Callable[[], float]) -> None:
        self._history = history
        self._truth = truth
        self._now_s = now_s
        self.entries = GroupEntries(history=history, now_s=now_s, committed=self._committed)
        self._newest: defaultdict[str, list[tuple[float, int]]] = defaultdict(lambda: [(0.0, -1)])
        """The generations that somebody was told of, and when first."""
        self._owners: dict[tuple[str, int, Place], str] = {}
        self._holders: dict[GroupPlace, str] = {}
        """Under the consumer protocol: who was given a partition, and has not said that it gave it up."""
        self._counted_until_s: dict[tuple[str, str], float] = {}
        """Until when a member's coordinator cannot have taken it for gone."""
        self._processed: defaultdict[GroupPlace, int] = defaultdict(int)
        """Every record below was processed by some member."""
        self._undecided: defaultdict[tuple[GroupPlace, int], list[Commit]] = defaultdict(list[Commit])
        """Commits of an offset that are not known to be done, or not to be done."""
        self._unclaimed: defaultdict[tuple[GroupPlace, int], list[float]] = defaultdict(list[float])
        """When entries committed it; but for those that belong to commits that were acknowledged."""

    # Generations.

    def newest(self, group_id: str) -> int:
        """The newest generation that anybody was told of; a question asked now is not answered with an older one."""
        return self._newest[group_id][-1][1]

    def told_generation(self, who: str, group_id: str, generation: int, at_least: int) -> None:
        """A JoinGroup or SyncGroup succeeded, and what was the newest generation when it was sent."""
        if generation != self.newest(group_id):
            self._history.note(who, "generation told", f"{group_id} {generation}")
        if generation < at_least:
            self._history.violation(
                f"{who} is told of generation {generation} of {group_id}, after somebody was told of {at_least}"
            )
        if generation > self.newest(group_id):
            self._newest[group_id].append((self._now_s(), generation))

    def told_alive(self, who: str, group_id: str, generation: int, asked_s: float) -> None:
        """A heartbeat of a member of a classic group was answered without an error."""
        newer_s = next((told_s for told_s, newer in self._newest[group_id] if newer > generation), asked_s)
        if newer_s < asked_s - STALE_SECONDS_MAX:
            self._history.violation(
                f"{who} may stay in generation {generation} of {group_id}, {asked_s - newer_s:.1f} s after somebody "
                f"was told of a newer one (S13)"
            )

    def told_by(self, agents: Sequence[str], who: str, group_id: str, asked_s: float) -> None:
        """One of these agents answered a heartbeat without an error."""
        claims = self.entries.coordinators[group_id]
        ends_s = [claimed_s for claimed_s, _ in claims[1:]] + [self._now_s()]
        held = [end_s for (_, name), end_s in zip(claims, ends_s, strict=False) if name in agents]
        if not held or held[-1] < asked_s - STALE_SECONDS_MAX:
            self._history.violation(
                f"{', '.join(agents)} tells {who} that it may stay in {group_id}, which was another agent's "
                f"{STALE_SECONDS_MAX} s before (S13)"
            )

    def is_counted_in(self, who: str, group_id: str, until_s: float) -> None:
        """A member was heard of: until then its coordinator, whoever that will be, cannot take it for gone."""
        self._counted_until_s[group_id, who] = until_s

    def leaves(self, who: str, group_id: str) -> None:
        """A member may be taken for gone from now on."""
        self._counted_until_s.pop((group_id, who), None)

    def told_unknown(self, who: str, group_id: str, error: int) -> None:
        """A member is told that it is none, or not in this generation."""
        until_s = self._counted_until_s.pop((group_id, who), 0.0)
        if error == ErrorCode.illegal_generation and group_id in self.entries.became_classic:
            # The classic group begins at the consumer group's epoch, and tells so whoever was behind it, as Kafka does.
            return
        if (group_id, who) in self.entries.replaced:
            # A static member's place is whose request came last, as in Kafka: also that of the program before it.
            return
        if error in GONE and self._now_s() < until_s:
            self._history.violation(
                f"{who} is told {ErrorCode(error).name}, though {group_id} may not give it up for another "
                f"{until_s - self._now_s():.1f} s"
            )

    def assigned(self, who: str, group_id: str, generation: int, places: Iterable[Place]) -> None:
        """A member of a classic group was given partitions. `who`: an instance id, where it has one."""
        for place in places:
            owner = self._owners.setdefault((group_id, generation, place), who)
            if owner != who:
                self._history.violation(
                    f"{place} is given to {who} and to {owner} in generation {generation} of {group_id}"
                )

    # Assignments of the consumer protocol.

    def given(self, who: str, group_id: str, places: Iterable[Place]) -> None:
        """A member is told what it should have."""
        for place in sorted(places):
            holder = self._holders.get((group_id, place), who)
            is_replaced = (group_id, holder) in self.entries.replaced
            if holder != who and not is_replaced and self._now_s() < self._counted_until_s.get((group_id, holder), 0.0):
                self._history.violation(f"{place} is given to {who}, and {holder} of {group_id} has it")
            self._holders[group_id, place] = who
        self._history.note(who, "is given", f"{group_id} {sorted(places)}")

    def gives_up(self, who: str, group_id: str, places: Iterable[Place]) -> None:
        """A member does not read partitions any more, and is about to say so, or is gone."""
        for place in places:
            if self._holders.get((group_id, place)) == who:
                del self._holders[group_id, place]

    # Commits.

    def sends_commit(self, group_id: str, who: str, generation: int, offsets: Mapping[Place, int]) -> Commit:
        """An OffsetCommit of a member of a classic group is about to be sent."""
        return self._sends(group_id, who, generation, offsets, newest=self.newest(group_id), moved=frozenset())

    def sends_commit_of_epoch(self, group_id: str, who: str, epoch: int, offsets: Mapping[Place, int]) -> Commit:
        """An OffsetCommit of a member of a consumer group is about to be sent."""
        moved = self._moved(group_id, who, offsets)
        return self._sends(group_id, who, epoch, offsets, newest=epoch, moved=moved)

    def offers(self, group_id: str, who: str, generation: int, offsets: Mapping[Place, int]) -> Commit:
        """A TxnOffsetCommit of a member of a classic group is about to be sent; what becomes of its transaction is
        judged elsewhere."""
        return self._made(group_id, who, generation, offsets, newest=self.newest(group_id), moved=frozenset())

    def offers_of_epoch(self, group_id: str, who: str, epoch: int, offsets: Mapping[Place, int]) -> Commit:
        """The same of a member of a consumer group."""
        return self._made(group_id, who, epoch, offsets, newest=epoch, moved=self._moved(group_id, who, offsets))

    def taken(self, commit: Commit) -> None:
        """A TxnOffsetCommit was acknowledged."""
        for place, offset in commit.offsets.items():
            what = f"{offset} of {place}"
            self._history.note(commit.who, "offers", f"{commit.group_id}/{commit.generation} {what}")
            self._judge_standing(commit, place, what)

    def _moved(self, group_id: str, who: str, offsets: Mapping[Place, int]) -> frozenset[Place]:
        return frozenset(place for place in offsets if self._holders.get((group_id, place), who) != who)

    def _made(
        self,
        group_id: str,
        who: str,
        generation: int,
        offsets: Mapping[Place, int],
        *,
        newest: int,
        moved: frozenset[Place],
    ) -> Commit:
        return Commit(
            group_id=group_id,
            who=who,
            generation=generation,
            offsets=offsets,
            newest=newest,
            asked_s=self._now_s(),
            moved=moved,
        )

    def _sends(
        self,
        group_id: str,
        who: str,
        generation: int,
        offsets: Mapping[Place, int],
        *,
        newest: int,
        moved: frozenset[Place],
    ) -> Commit:
        commit = self._made(group_id, who, generation, offsets, newest=newest, moved=moved)
        for place, offset in offsets.items():
            if offset > max(self._processed[group_id, place], self._truth.start_of(place)):
                self._history.violation(f"{who} commits {offset} of {place}, which {group_id} has not processed")
            self._undecided[(group_id, place), offset].append(commit)
        return commit

    def commit_told(self, commit: Commit, errors: Mapping[Place, int]) -> None:
        """It was answered."""
        for place, error in errors.items():
            key = (commit.group_id, place), commit.offsets[place]
            what = f"{commit.offsets[place]} of {place}"
            self._history.note(commit.who, "commits", f"{commit.group_id}/{commit.generation} {what}: {error}")
            if not error:
                self._acknowledged(commit, place, what)
            if not error or error in FINAL:
                self._undecided[key].remove(commit)
            if len(self._unclaimed[key]) > len(self._undecided[key]):
                self._history.violation(f"{commit.who} may not commit {what}, and it is committed all the same")

    def _acknowledged(self, commit: Commit, place: Place, what: str) -> None:
        unclaimed = self._unclaimed[(commit.group_id, place), commit.offsets[place]]
        applied_s = next((applied_s for applied_s in unclaimed if applied_s >= commit.asked_s), None)
        if applied_s is None:
            self._history.violation(f"{commit.who} is told that {what} is committed, and it is not")
        else:
            unclaimed.remove(applied_s)
        self._judge_standing(commit, place, what)

    def _judge_standing(self, commit: Commit, place: Place, what: str) -> None:
        """Whoever may commit is a member as the group is now."""
        if place in commit.moved:
            self._history.violation(f"{commit.who} commits {what}, which was given to another one before (S13)")
        if commit.newest > commit.generation:
            self._history.violation(
                f"{commit.who} of generation {commit.generation} of {commit.group_id} commits {what}, though somebody "
                f"was told of generation {commit.newest} before (S13)"
            )

    def _committed(self, place: GroupPlace, offset: int) -> None:
        """An entry commits an offset."""
        key = place, offset
        self._unclaimed[key].append(self._now_s())
        if len(self._unclaimed[key]) > len(self._undecided[key]):
            self._history.violation(f"{offset} of {place[1]} is committed for {place[0]}, and nobody asks for it now")

    # Reading.

    def told_offsets(self, who: str, group_id: str, offsets: Mapping[Place, int], asked_s: float) -> None:
        """An OffsetFetch was answered; -1 where nothing is committed."""
        self._history.note(who, "offsets fetched", f"{group_id} {sorted(offsets.items())}")
        for place, offset in offsets.items():
            true = self.entries.values_between((group_id, place), asked_s, self._now_s())
            if offset not in true:
                self._history.violation(
                    f"{who} is told that {group_id} has come to {offset} of {place}, where {sorted(true)} is true (S4)"
                )

    def processed(self, who: str, group_id: str, place: Place, first: int, end: int) -> None:
        """A member has processed the records of a range of offsets."""
        known = self._processed[group_id, place]
        if first > max(known, self._truth.start_of(place)):
            self._history.violation(f"{who} begins at {first} of {place}, and {group_id} has only processed {known}")
        if first < known:
            self._history.note(who, "processes again", f"{group_id} {place} {first}..{min(end, known)}")
        self._processed[group_id, place] = max(known, end)

    # At the end.

    def is_through(self, group_id: str, places: Collection[Place]) -> bool:
        """Whether everything that is there now was processed and committed."""
        return not self._left(group_id, places)

    def _left(self, group_id: str, places: Collection[Place]) -> list[str]:
        left: list[str] = []
        for place in places:
            start, end, processed = (
                self._truth.start_of(place),
                self._truth.end_of(place),
                self._processed[group_id, place],
            )
            committed = self.entries.value((group_id, place))
            if start < end and (processed < end or committed != end):
                left.append(f"{place}: it ends at {end}, processed up to {processed}, committed {committed}")
        return left

    def judge(self, group_id: str, places: Collection[Place]) -> None:
        """When all members had time to process everything."""
        for line in self._left(group_id, places):
            self._history.violation(f"group {group_id} is not through with {line}")
