"""Checks whether all values of one JSON Schema are values of another.

Rule: the content models decide. A property may be added to a closed object; in an open one its name may have held
anything. A property may be removed from an open object.
Source: Confluent's documentation, "JSON Schema compatibility rules", and io.confluent.kafka.schemaregistry.json.diff,
with its names of faults. Differs from Confluent's registry: changes of keywords without a rule there are faults (if,
then and else, pattern properties, names, contains, unevaluated parts, required names without a property); a member of
allOf may be removed.
"""

from collections.abc import Callable

from agent.schemas.json_schema_content import array_faults, object_faults
from agent.schemas.json_schema_limits import fault, number_faults, schema_dict, string_faults
from agent.schemas.json_schema_nodes import SchemaNode
from agent.schemas.json_schema_shapes import (
    ALL,
    ANY,
    ANYTHING,
    ARRAY,
    CHOICES,
    ENUM,
    JOINED,
    NOT,
    NOTHING,
    NUMBER,
    OBJECT,
    ONE,
    REST,
    STRING,
    WITHOUT_A_RULE,
    Shape,
    shape_of,
)
from agent.schemas.json_text import same_json
from agent.schemas.parsed import NOTED_ELSEWHERE, Budget, Pair, faults_of_recursive

Part = Shape | SchemaNode
Leaf = Callable[[Shape, Shape, str], list[str]]


def faults_reading(*, reader: SchemaNode, writer: SchemaNode) -> list[str]:
    """The faults, each with its place; empty where every value of the writer's schema is one of the reader's."""

    def compare(unreadable: set[Pair], budget: Budget) -> tuple[list[str], set[Pair]]:
        comparison = JsonSchemaComparison(unreadable, budget)
        return comparison.faults(writer, reader, "#"), comparison.unreadable

    return faults_of_recursive(compare, "parts")


class JsonSchemaComparison:
    """Compares each pair of schemas once.

    A pair that is reached again inside its own comparison counts as compatible, unless it is in `unreadable`.
    """

    def __init__(self, unreadable: set[Pair], budget: Budget) -> None:
        self.unreadable = set(unreadable)
        self._found: dict[Pair, list[str]] = {}
        self._budget = budget
        self._leaves: dict[str, Leaf] = {
            STRING: string_faults,
            NUMBER: number_faults,
            ENUM: _enum_faults,
            REST: _rest_faults,
            NOT: self._not_faults,
            OBJECT: lambda before, after, path: object_faults(self, before, after, path),
            ARRAY: lambda before, after, path: array_faults(self, before, after, path),
        }

    def faults(self, before: Part, after: Part, path: str) -> list[str]:
        """The faults that keep values of `before` from being values of `after`."""
        self._budget.take()
        if isinstance(before, Shape) or isinstance(after, Shape):
            return self._shape_faults(_shape(before), _shape(after), path)
        before, after = before.followed(), after.followed()
        pair = id(before.schema), id(after.schema)
        if isinstance(before.schema, bool) or isinstance(after.schema, bool):
            return self._shape_faults(shape_of(before), shape_of(after), path)
        if pair not in self._found:
            self._found[pair] = [NOTED_ELSEWHERE] if pair in self.unreadable else []
            self._found[pair] = self._shape_faults(shape_of(before), shape_of(after), path)
            if self._found[pair]:
                self.unreadable.add(pair)
        return self._found[pair]

    def _shape_faults(self, before: Shape, after: Shape, path: str) -> list[str]:
        if before.kind == NOTHING or after.kind == ANYTHING:
            return []
        if before.kind in JOINED or after.kind in JOINED:
            return self._joined_faults(before, after, path)
        if before.kind != after.kind or (after.is_typed and not before.is_typed):
            return [fault("TYPE_CHANGED", path)]
        leaf = self._leaves.get(before.kind)
        return [] if leaf is None else leaf(before, after, path)

    def _joined_faults(self, before: Shape, after: Shape, path: str) -> list[str]:
        """The faults between combined schemas.

        Before: each member of anyOf and oneOf has to be compatible, of allOf one member is enough. After: the reverse.
        """
        if after.kind == ONE and len(after.members) > 1 and not _is_exclusive(before):
            return [fault("COMBINED_TYPE_CHANGED", path)]
        if before.kind in CHOICES:
            faults = [each for member in before.members for each in self.faults(member, after, path)]
            return [fault("SUM_TYPE_NARROWED", path), *faults] if faults else []
        if after.kind == ALL:
            faults = [each for member in after.members for each in self.faults(before, member, path)]
            return [fault("PRODUCT_TYPE_EXTENDED", path), *faults] if faults else []
        if before.kind == ALL and any(not self.faults(member, after, path) for member in before.members):
            return []
        if after.kind in CHOICES and any(not self.faults(before, member, path) for member in after.members):
            return []
        alike = [each for each in before.members if isinstance(each, Shape) and each.kind == after.kind]
        faults = [each for member in alike for each in self.faults(member, after, path)]
        return [fault("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path), *faults]

    def _not_faults(self, before: Shape, after: Shape, path: str) -> list[str]:
        """The faults by what `not` excludes before and after."""
        is_narrowed = not self.faults(after.members[0], before.members[0], f"{path}/not")
        return [] if is_narrowed else [fault("NOT_TYPE_EXTENDED", path)]


def _shape(part: Part) -> Shape:
    return part if isinstance(part, Shape) else shape_of(part.followed())


def _is_exclusive(before: Shape) -> bool:
    """Whether no value can match two members, or there is only one member."""
    return before.kind != ANY or before.are_types or len(before.members) == 1


def _enum_faults(before: Shape, after: Shape, path: str) -> list[str]:
    is_extended = all(any(same_json(value, other) for other in after.values) for value in before.values)
    return [] if is_extended else [fault("ENUM_ARRAY_NARROWED", f"{path}/enum")]


def _rest_faults(before: Shape, after: Shape, path: str) -> list[str]:
    """The faults of keywords without a rule: they may stay or be removed. `if`, `then` and `else` count as one."""
    was, now = schema_dict(before), schema_dict(after)
    words = [word for word in sorted(WITHOUT_A_RULE) if word in now]
    changed = [word for word in words if word not in was or not same_json(was[word], now[word])]
    if "if" in now and any(word in was and word not in now for word in ("then", "else")):
        return [] if not changed else [fault("CONDITION_CHANGED", f"{path}/{word}") for word in changed]
    return [fault("KEYWORD_CHANGED", f"{path}/{word}") for word in changed]
