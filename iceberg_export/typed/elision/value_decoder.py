"""The decoder of values whose bytes a file leaves out, made from the plans in its footer.

It implements `iceberg_export.rows.footer.ValueDecoder`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from iceberg_export.rows.columns import BinaryColumn
from iceberg_export.typed.value_plans import ValuePlans, decode_plans

Arrow: TypeAlias = Any
"""A pyarrow object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedValueDecoder:
    """Decodes left-out values by a file's plans. Implements `iceberg_export.rows.footer.ValueDecoder`."""

    plans: ValuePlans

    @property
    def columns(self) -> tuple[str, ...]:
        """The typed columns that the plans name, each once."""
        return self.plans.columns

    def decode(self, kept_values: BinaryColumn, schema_ids: Arrow, arrays: Mapping[str, Arrow]) -> BinaryColumn:
        """All values of a row group: see `value_reconstruction.restored_values`. CPU work. Raises `FileUnreadable`."""
        # The import loads the kernels that encode values, which takes longer than to read a footer.
        from iceberg_export.typed.elision.value_reconstruction import restored_values

        return restored_values(self.plans, kept_values, schema_ids, arrays)


def value_decoder(text: str) -> PlannedValueDecoder:
    """The decoder of the plans in a footer's text. Raises `ValueError` where this version cannot use them."""
    return PlannedValueDecoder(plans=decode_plans(text))
