"""A generated function uses what is bound to its names, and a traceback shows its lines."""

import traceback
from typing import Any

import pytest

from protocol.codecs.source import FunctionSource


def test_bound_values_are_reached_by_names_of_their_own() -> None:
    source = FunctionSource("sum")
    first, second = source.bind(3, "value"), source.bind(4, "value")
    source.use({"added": 5})
    assert first != second
    with source.block("def add(number):"):
        with source.block("if number:"):
            source.line(f"return number + {first} + {second} + added")
        source.line("return 0")
    add: Any = source.compiled("add")
    assert (add(0), add(1)) == (0, 13)


def test_a_traceback_shows_the_line_that_failed() -> None:
    source = FunctionSource("failing reader")
    with source.block("def fail(data):"):
        source.line("return data[7]")
    fail: Any = source.compiled("fail")
    with pytest.raises(IndexError) as caught:
        fail(b"")
    shown = "".join(traceback.format_exception(caught.value))
    assert "<failing reader>" in shown
    assert "return data[7]" in shown
