"""Output of commands: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Mapping, Sequence

from protocol.limits import KIB, MIB

GIB = 1024 * MIB
Row = Mapping[str, object]


def print_json(value: object) -> None:
    """Print one JSON document to stdout."""
    print_bytes(json.dumps(value, indent=2, ensure_ascii=False, default=str).encode(errors="backslashreplace") + b"\n")


def print_bytes(data: bytes) -> None:
    """Write bytes to stdout, whatever the locale, behind the text that was written before."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def print_table(rows: Sequence[Row], columns: Sequence[str], *, empty: str) -> None:
    """Print rows as a table, or `empty` without any. Numbers are right-aligned, columns of bytes have units.

    A terminal gets lines and folded cells, a pipe one plain line a row.
    """
    if not rows:
        sys.stdout.write(empty + "\n")
        return
    cells = [[cell_text(column, row.get(column)) for column in columns] for row in rows]
    titles = [column.replace("_", " ") for column in columns]
    is_number = [any(isinstance(row.get(column), int) for row in rows) for column in columns]
    if sys.stdout.isatty():
        _print_rich(cells, titles, is_number)
    else:
        _print_plain(cells, titles, is_number)


def _print_rich(cells: list[list[str]], titles: list[str], is_number: list[bool]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title, is_right in zip(titles, is_number, strict=True):
        table.add_column(title, justify="right" if is_right else "left", overflow="fold", no_wrap=is_right)
    for row in cells:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


def _print_plain(cells: list[list[str]], titles: list[str], is_number: list[bool]) -> None:
    """Print a table for a pipe, which has no width: one line a row, never folded."""
    widths = [max(len(row[index]) for row in [titles, *cells]) for index in range(len(titles))]
    for row in [titles, *cells]:
        padded = (
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, is_number, strict=True)
        )
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def print_pairs(values: Mapping[str, object]) -> None:
    """Print a name and a value a line. Lists of dicts are skipped: they are for tables."""
    shown = {name: value for name, value in values.items() if not _is_table(value)}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        sys.stdout.write(f"{name.replace('_', ' '):<{width}}  {cell_text(name, value)}\n")


def counted(count: int, noun: str) -> str:
    """A count with its noun: `1 record`, `2 records`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def bytes_text(count: int) -> str:
    """A number of bytes in the largest unit: `12 B`, `3.4 KiB`, `1.0 GiB`."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def cell_text(column: str, value: object) -> str:
    """The text of a table's cell; numbers in columns of bytes have units."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() if column == "bytes" or column.endswith("_bytes"):
            return bytes_text(value)
        case list():
            return ", ".join(str(item) for item in value) or "-"
        case dict():
            return ", ".join(f"{key}={item}" for key, item in value.items()) or "-"
        case _:
            return str(value)
