"""The plans in a file's footer to encode left-out values from its typed columns again, one for each schema.

A plan is enough: it has the names of the file's columns, and the encoding of each. A reader needs neither the schema's
text nor the registry, where the schema may be deleted.
"""

from enum import IntEnum

import msgspec

from protocol.decoding import JsonDecoder

NO_NULL = -1
PLANS_VERSION = 1
"""The version of the plans. A change that gives other bytes for the same plan and columns increments it."""


class ReadOp(IntEnum):
    """The operation that reads a value. Plans have its number, so no number ever gets another meaning."""

    BOOLEAN = 0
    FLOAT = 1
    DOUBLE = 2
    FIXED = 3
    LONG = 4
    INT = 5
    ENUM = 6
    BYTES = 7
    DECIMAL = 8
    """At most eight bytes that are a number."""


class FieldPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A field of a flat Avro record, in the order of the record.

    `null`: the branch of its union that is null; `NO_NULL` without a union. `size`: the bytes of a fixed. `symbols`:
    those of an enum. `is_milliseconds`: the record has milliseconds, the column microseconds.
    """

    column: str
    op: ReadOp
    null: int = NO_NULL
    size: int = 0
    symbols: tuple[str, ...] = ()
    is_milliseconds: bool = False


class SchemaPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a schema's values, after the frame: a byte 0 and the schema's id."""

    schema_id: int
    fields: tuple[FieldPlan, ...]


class ValuePlans(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The plans of a file, one for each schema, in the order of ids."""

    schemas: tuple[SchemaPlan, ...]
    version: int = PLANS_VERSION

    @property
    def columns(self) -> tuple[str, ...]:
        """The typed columns that any of the plans needs, each once."""
        return tuple(dict.fromkeys(field.column for schema in self.schemas for field in schema.fields))


_decoder = JsonDecoder(ValuePlans)


def encode_plans(plans: ValuePlans) -> str:
    """The plans as JSON; equal plans give equal text."""
    return msgspec.json.encode(plans).decode()


def decode_plans(text: str) -> ValuePlans:
    """The plans of their JSON. Raises `ValueError` where this version cannot use them."""
    plans = _decoder.decode(text)
    if plans.version != PLANS_VERSION:
        raise ValueError(f"plans of version {plans.version}; this program supports version {PLANS_VERSION}")
    return plans


def plan_bytes(plan: SchemaPlan) -> int:
    """The bytes of a plan in a footer."""
    return len(msgspec.json.encode(plan))
