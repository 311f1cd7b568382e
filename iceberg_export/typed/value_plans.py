"""How values whose bytes a file leaves out are made again of its typed columns: a plan for each schema, in its footer.

Rule: a plan is enough. It names the columns as this file calls them, and says how each was written; who reads needs
neither the schema's text nor the registry, where the schema may be deleted by then.
"""

import msgspec

from iceberg_export.typed.flat_avro_kernel import ReadOp
from protocol.decoding import JsonDecoder

NO_NULL = -1
PLANS_VERSION = 1
"""Raised by whatever makes other bytes of the same plan and columns."""


class FieldPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A field of a flat Avro record, in the place where it is written.

    `null`: which branch of its union is null, `NO_NULL` where it is none. `size`: bytes of a fixed. `symbols`: of an
    enum. `is_milliseconds`: the column has microseconds.
    """

    column: str
    op: ReadOp
    null: int = NO_NULL
    size: int = 0
    symbols: tuple[str, ...] = ()
    is_milliseconds: bool = False


class SchemaPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What values of one schema are, behind a byte 0 and the schema's id."""

    schema_id: int
    fields: tuple[FieldPlan, ...]


class ValuePlans(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The plans of a file, one a schema, in the order of their ids."""

    schemas: tuple[SchemaPlan, ...]
    version: int = PLANS_VERSION

    @property
    def columns(self) -> tuple[str, ...]:
        """The typed columns that any of the plans needs, each once."""
        return tuple(dict.fromkeys(field.column for schema in self.schemas for field in schema.fields))


_decoder = JsonDecoder(ValuePlans)


def encode_plans(plans: ValuePlans) -> str:
    """The plans as JSON, the same each time."""
    return msgspec.json.encode(plans).decode()


def decode_plans(text: str) -> ValuePlans:
    """The plans out of their JSON. Raises `ValueError` where this version cannot follow them."""
    plans = _decoder.decode(text)
    if plans.version != PLANS_VERSION:
        raise ValueError(f"plans of version {plans.version}; this program knows {PLANS_VERSION}")
    return plans


def plan_bytes(plan: SchemaPlan) -> int:
    """What a plan takes in a footer."""
    return len(msgspec.json.encode(plan))
