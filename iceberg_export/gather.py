"""Byte strings that lie apart in a payload, copied back to back.

Rule: pure; the kernel frees the GIL. A slice assignment is three times as fast here as a loop over bytes
(benchmarks/micro_parquet.py).
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(nogil=True, cache=True)
def gather(
    payload: NDArray[np.uint8],
    firsts: NDArray[np.int64],
    lengths: NDArray[np.int32],
    out: NDArray[np.uint8],
    out_first: int,
) -> int:
    """Copy `payload[firsts[i]:firsts[i] + lengths[i]]` for every i to `out`, back to back from `out_first`.

    A length below zero copies nothing. Returns the end of what was written.
    """
    end = out_first
    for row in range(len(firsts)):
        length = lengths[row]
        if length > 0:
            first = firsts[row]
            out[end : end + length] = payload[first : first + length]
            end += length
    return end
