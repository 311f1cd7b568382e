"""The decoder that a file's footer holds for values whose bytes the file leaves out.

Input: the plans in the footer's text. Output: an `iceberg_export.rows.footer.ValueDecoder`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from iceberg_export.rows.columns import BinaryColumn
from iceberg_export.typed.value_plans import ValuePlans, decode_plans

Arrow: TypeAlias = Any
"""An object of pyarrow's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedValueDecoder:
    """Decodes left-out values by a file's plans. Implements `iceberg_export.rows.footer.ValueDecoder`."""

    plans: ValuePlans

    @property
    def columns(self) -> tuple[str, ...]:
        """The typed columns that the plans name, each once."""
        return self.plans.columns

    def decode(self, kept: BinaryColumn, schema_ids: Arrow, arrays: Mapping[str, Arrow]) -> BinaryColumn:
        """All values of a row group: see `typed.restored.restored_values`. CPU work. Raises `FileUnreadable`."""
        # Brings the kernels that write values, which take longer to import than a footer takes to read.
        from iceberg_export.typed.restored import restored_values

        return restored_values(self.plans, kept, schema_ids, arrays)


def value_decoder(text: str) -> PlannedValueDecoder:
    """The decoder for the plans in a footer's text. Raises `ValueError` where this version cannot follow them."""
    return PlannedValueDecoder(plans=decode_plans(text))
