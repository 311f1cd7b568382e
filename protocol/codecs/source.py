"""The source of one generated function, line by line, and the function that Python compiles of it.

Only names that Kafka's schemas give, and names that are made here, become part of a source. Values never do: they are
bound to names. So no byte of a client reaches the compiler.
"""

import linecache
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

_INDENT: Final = "    "


class FunctionSource:
    """Collects the lines of a function and the objects that they name."""

    def __init__(self, title: str) -> None:
        """`title`: what tracebacks and profiles call the function's file."""
        self._title = title
        self._lines: list[str] = []
        self._depth = 0
        self._names_count = 0
        self._namespace: dict[str, object] = {}

    def line(self, text: str) -> None:
        """Append a line at the present depth."""
        self._lines.append(_INDENT * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Append the head of a block, such as `if a:`. What is appended within the context is its body."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, name: str) -> str:
        """A name that the function does not have yet."""
        self._names_count += 1
        return f"{name}_{self._names_count}"

    def use(self, values: Mapping[str, object]) -> None:
        """Let the lines use these values by these names."""
        self._namespace.update(values)

    def bind(self, value: object, name: str) -> str:
        """The name by which the lines may use a value."""
        bound_name = self.fresh(name)
        self._namespace[bound_name] = value
        return bound_name

    def compiled(self, function_name: str) -> object:
        """The function that the lines define. Tracebacks show its lines."""
        text = "\n".join(self._lines) + "\n"
        filename = f"<{self._title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self._namespace)  # noqa: S102 - no byte of a client is in the text
        return self._namespace[function_name]
