"""What a case is made of: steps, and placeholders for what is known only when the case runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


@dataclass(frozen=True, slots=True)
class V:
    """The value that an earlier step saved under a name, plus a number if given."""

    name: str
    add: int = 0


@dataclass(frozen=True, slots=True)
class T:
    """The name of one of this case's topics."""

    name: str = "t"


@dataclass(frozen=True, slots=True)
class G:
    """One of this case's groups or transactional ids."""

    name: str = "g"


@dataclass(frozen=True, slots=True)
class Lazy:
    """Built when its step runs: `make(**arguments)`, with the arguments' placeholders replaced."""

    make: Callable[..., bytes | str]
    arguments: tuple[tuple[str, Any], ...]


class Mode(Enum):
    """How a step treats its answer."""

    CALL = "awaited"
    SEND = "left for a later step"
    RECEIVE = "awaited, of an earlier step on the same connection"
    MUTE = "none is expected"


@dataclass(frozen=True, slots=True)
class Step:
    """One request, and what of its answer counts."""

    api: str
    version: int
    body: Any
    """The message as a dict, or bytes that are sent as they are; either with placeholders."""
    save: dict[str, str] = field(default_factory=dict)
    """Name -> path of the field in the answer, for `V(name)` in later steps."""
    until: tuple[str, Any] | None = None
    """Ask again until the field at this path has this value."""
    raw: bool = False
    """Take errors that mean "ask again" as an answer too."""
    quiet: bool = False
    """Preparation: the answer is not compared."""
    conn: str = "main"
    mode: Mode = Mode.CALL
    mask: tuple[str, ...] = ()
    """Fields of the answer whose value does not count."""
    pause: float = 0.0
    """Seconds to wait first."""
    key: int | None = None
    """Another API key than the one that belongs to `api`."""
    records: bool = False
    """Take the fetched record batches apart."""
    client: Any = None
    """The client id of the connection where it is not that of all cases; with placeholders."""

    @property
    def label(self) -> str:
        return f"{self.api}v{self.version}"


@dataclass(frozen=True, slots=True)
class Case:
    """One conversation."""

    name: str
    steps: tuple[Step, ...]

    @property
    def needs(self) -> set[str]:
        """The APIs that a broker must serve for this case; a transactional id needs those of transactions."""
        apis = {step.api for step in self.steps}
        is_transactional = any(
            isinstance(step.body, dict) and step.body.get("TransactionalId") not in (None, "") for step in self.steps
        )
        return apis | {"AddPartitionsToTxn"} if is_transactional else apis


class Cases(list[Case]):
    """The cases of one module, in order."""

    def add(self, name: str, *steps: Step | list[Step]) -> None:
        """Append a case; a list stands for its steps."""
        flat: list[Step] = []
        for step in steps:
            flat += step if isinstance(step, list) else [step]
        self.append(Case(name, tuple(flat)))
