"""The compiled kernel of `gather`. Pure; it frees the GIL.

The import reads the kernel, or compiles it (`protocol.kernel_cache`).
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from protocol.kernel_cache import kernel
from protocol.records.copy_kernel import copy_bytes

_ARGUMENTS = (
    types.Array(types.uint8, 1, "C", readonly=True),
    types.Array(types.int64, 1, "C", readonly=True),
    types.Array(types.int32, 1, "C", readonly=True),
    types.Array(types.uint8, 1, "C"),
    types.int64,
)


def gather_by_kernel(
    payload: NDArray[np.uint8],
    first: NDArray[np.int64],
    length: NDArray[np.int32],
    out: NDArray[np.uint8],
    out_first: int,
) -> int:
    """The implementation of `gather.gather` by the kernel."""
    return int(_gather(payload, first, length, out, out_first))


def _copy_strings(payload, first, length, out, out_first):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    end = out_first
    for row in range(len(first)):
        size = int(length[row])
        if size > 0:
            copy_bytes(out, end, payload, first[row], size)
            end += size
    return end


_gather = kernel(*_ARGUMENTS)(_copy_strings)
