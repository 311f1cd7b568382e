"""Messages between an agent and its worker."""

import os
import threading
from typing import cast

import pytest

from agent.lake.worker.messages import TooLarge, read_message, write_message

BYTES_MAX = 1 << 24


def test_views_come_back_in_place_and_other_values_as_they_were() -> None:
    views = [memoryview(bytes([number % 256]) * (number % 5000)) for number in range(3000)]
    read = cast("tuple[object, list[memoryview]]", read_message(write_message(({"a": 1}, views), bytes_max=BYTES_MAX)))
    assert read == ({"a": 1}, views)
    assert len({id(view.obj) for view in read[1]}) == 1, "all lie in the one memory"
    assert read[1][-1].readonly


def test_a_view_of_a_part_and_one_that_may_be_written() -> None:
    held = bytearray(range(100))
    parts = [memoryview(held)[10:20], memoryview(held)]
    assert read_message(write_message(parts, bytes_max=BYTES_MAX)) == parts


def test_a_value_without_views() -> None:
    assert read_message(write_message("x", bytes_max=BYTES_MAX)) == "x"


def test_one_that_is_too_large_is_not_written() -> None:
    with pytest.raises(TooLarge, match="is the most"):
        write_message([memoryview(bytes(100)), memoryview(bytes(100))], bytes_max=200)


def test_no_descriptor_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        read_message(write_message([memoryview(bytes(100))], bytes_max=BYTES_MAX))
        with pytest.raises(TypeError):
            write_message(threading.Lock(), bytes_max=BYTES_MAX)
    assert len(os.listdir("/proc/self/fd")) == before
