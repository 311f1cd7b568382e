"""Copying bytes between arrays inside a compiled kernel, as fast as memory goes.

Rule: nothing is checked: both ranges must lie within their arrays, and must not overlap. A slice assignment in numba
copies byte by byte, which is five to ten times slower.
Specification: numba's manual, "Low-level extension API"; `llvm.memcpy` in LLVM's language reference.
"""
# numba makes these functions' types when a kernel is compiled.
# ruff: noqa: ANN001, ANN202
# mypy: allow-untyped-defs, allow-untyped-calls
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, MutableSequence
from typing import TypeAlias, cast

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

Numbers: TypeAlias = MutableSequence[int]


def _copy_bytes(_context, output, _output_first, data, _data_first, _count):  # pragma: no cover
    def generate(context, builder, signature, arguments):  # pragma: no cover
        target, target_first, source, source_first, size = arguments
        target_array = context.make_array(signature.args[0])(context, builder, target)
        source_array = context.make_array(signature.args[2])(context, builder, source)
        cgutils.raw_memcpy(
            builder,
            builder.gep(target_array.data, [target_first]),
            builder.gep(source_array.data, [source_first]),
            size,
            1,
        )
        return context.get_dummy_value()

    return types.void(output, types.int64, data, types.int64, types.int64), generate


copy_bytes = cast("Callable[[Numbers, int, Numbers, int, int], None]", intrinsic(_copy_bytes))
"""`copy_bytes(output, output_first, data, data_first, count)`, for kernels only; all numbers count bytes."""
