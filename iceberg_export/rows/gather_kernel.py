"""The compiled kernel of `gather`. Pure; it frees the GIL.

The import compiles the kernel, or loads it from numba's cache.
"""

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from protocol.records.copy_kernel import copy_bytes

_SIGNATURE = types.int64(
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


try:
    _gather = njit(_SIGNATURE, nogil=True, cache=True)(_copy_strings)
except RuntimeError:  # numba finds no folder for its cache that it may write
    _gather = njit(_SIGNATURE, nogil=True)(_copy_strings)
