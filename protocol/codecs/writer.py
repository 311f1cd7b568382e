"""Writes the source of a response's writer: from plain mappings to bytes, without a loop over the schema.

A handler names the fields of every version. A field that the response's version lacks is left out. One that the
handler does not name takes the schema's default, and the throttle time is 0. Sequences stand for arrays, mappings for
structures, None for null.

Fields of a fixed width that follow each other are packed by one call; so is every row of an array whose structures
have nothing else.

In a source `out` is the bytearray that becomes the response.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from struct import Struct
from typing import Any, Final, cast

from protocol.codecs.schema import REQUIRED, FieldSchema, StructureSchema
from protocol.codecs.source import FunctionSource
from protocol.codecs.values import NumberPackers, datetime_ms, time_ms, uuid_bytes
from protocol.wire import pack_tagged_fields, pack_unsigned_varint

ResponseWriter = Callable[[int, Mapping[str, Any]], bytearray]
"""Takes the correlation id and the fields, and returns the response with its header."""

_HELPERS: Final = {
    "datetime_ms": datetime_ms,
    "pack_tagged_fields": pack_tagged_fields,
    "pack_unsigned_varint": pack_unsigned_varint,
    "time_ms": time_ms,
    "uuid_bytes": uuid_bytes,
}
_CONVERSIONS: Final = {
    "datetime_i64": "datetime_ms({})",
    "timedelta_i32": "time_ms({})",
    "timedelta_i64": "time_ms({})",
    "uuid": "uuid_bytes({})",
}
_THROTTLE_TIME: Final = "throttle_time"


def response_writer(schema: StructureSchema, title: str, *, has_tags_in_header: bool) -> ResponseWriter:
    """The writer of a response.

    Args:
        schema: the response's.
        title: what tracebacks call the source.
        has_tags_in_header: whether the header ends with tagged fields, of which there are none.
    """
    source = FunctionSource(title)
    with source.block("def write(correlation_id, values):"):
        writes = _Writes(source, title)
        writes.begin()
        writes.fixed("i", "correlation_id")
        if has_tags_in_header:
            writes.fixed("x")
        writes.structure(schema, "values")
        writes.flush()
        source.line("return out")
    return cast("ResponseWriter", source.compiled("write"))


def _tagged_writer(field: FieldSchema, title: str, *, is_flexible: bool) -> object:
    """The function that gives the bytes of a tagged field, for its value."""
    source = FunctionSource(f"{title}, {field.name}")
    with source.block("def write(value):"):
        writes = _Writes(source, title)
        writes.begin()
        # A tagged field that is written has its value: null is said by leaving it out.
        writes.value(replace(field, is_nullable=False), "value", is_flexible=is_flexible)
        writes.flush()
        source.line("return out")
    return source.compiled("write")


class _Writes:
    """Appends the lines that write values."""

    def __init__(self, source: FunctionSource, title: str) -> None:
        self._source = source
        self._title = title
        self._formats: list[str] = []
        self._expressions: list[str] = []

    def begin(self) -> None:
        """Append the first line."""
        self._source.use(_HELPERS)
        self._source.line("out = bytearray()")

    def structure(self, schema: StructureSchema, values: str) -> None:
        """Write the fields of the mapping that an expression names."""
        for field in schema.plain_fields:
            self._field(field, values, is_flexible=schema.is_flexible)
        if schema.tagged_fields:
            self._tagged_fields(schema, values)
        elif schema.is_flexible:
            self.fixed("x")

    def fixed(self, value_format: str, *expressions: str) -> None:
        """Write what has a fixed width, by the next `flush`."""
        self._formats.append(value_format)
        self._expressions += expressions

    def flush(self) -> None:
        """Append the line that packs what is of fixed width since the last variable value."""
        if self._formats:
            self._source.line(f"out += {self._packed()}")

    def value(self, field: FieldSchema, value: str, *, is_flexible: bool) -> None:
        """Write the value that a name or an index names; `value` is evaluated more than once."""
        if field.is_array:
            self._array(field, value, is_flexible=is_flexible)
        elif field.structure is not None:
            self._structure(field, field.structure, value)
        elif field.fixed_format is not None:
            self.fixed(field.fixed_format, _CONVERSIONS.get(field.kafka_type, "{}").format(value))
        else:
            self._text(field, value, is_flexible=is_flexible)

    def _field(self, field: FieldSchema, values: str, *, is_flexible: bool) -> None:
        if field.fixed_format is not None:
            self.fixed(field.fixed_format, self._fixed_expression(field, values))
            return
        value = self._source.fresh(field.name)
        self._source.line(f"{value} = {self._expression(field, values)}")
        self.value(field, value, is_flexible=is_flexible)

    def _expression(self, field: FieldSchema, values: str) -> str:
        """The value of a field in a mapping, or its default."""
        if field.default is REQUIRED:
            return f'{values}["{field.name}"]'
        default = self._source.bind(field.default, "default")
        return f'{values}["{field.name}"] if "{field.name}" in {values} else {default}'

    def _fixed_expression(self, field: FieldSchema, values: str) -> str:
        """The same, as `struct` packs it."""
        convert = _CONVERSIONS.get(field.kafka_type)
        if convert is None:
            return self._expression(field, values)
        if field.name == _THROTTLE_TIME:  # a quota's is written into the bytes, later: `protocol.throttle_time`
            return f'time_ms({values}["{field.name}"]) if "{field.name}" in {values} else 0'
        return convert.format(self._expression(field, values))

    def _packed(self) -> str:
        """The expression of what is of fixed width since the last variable value."""
        pack = self._source.bind(Struct(">" + "".join(self._formats)).pack, "pack")
        call = f"{pack}({', '.join(self._expressions)})"
        self._formats.clear()
        self._expressions.clear()
        return call

    def _length(self, value_format: str, length: str, *, is_flexible: bool) -> None:
        """Write a length, -1 for null, behind what is of fixed width. A compact one is a varint, larger by 1."""
        if not is_flexible:
            self.fixed(value_format, length)
            return
        self._source.line(f"{length} += 1")
        formats, expressions = [*self._formats], [*self._expressions]
        with self._source.block(f"if {length} < 128:"):
            self.fixed("B", length)
            self.flush()
        with self._source.block("else:"):
            self._formats, self._expressions = formats, expressions
            self.flush()
            self._source.line(f"out += pack_unsigned_varint({length})")

    def _text(self, field: FieldSchema, value: str, *, is_flexible: bool) -> None:
        is_string = field.kafka_type == "string"
        length, data = self._source.fresh(f"{field.name}_length"), self._source.fresh("data")
        with self._unless_null(field, value, f"{length}, {data} = -1, b''"):
            self._source.line(f"{data} = {value}" + (".encode()" if is_string else ""))
            self._source.line(f"{length} = len({data})")
        self._length("h" if is_string else "i", length, is_flexible=is_flexible)
        self.flush()
        self._source.line(f"out += {data}")

    def _array(self, field: FieldSchema, value: str, *, is_flexible: bool) -> None:
        element = field.element
        if element.fixed_format is not None and element.kafka_type not in _CONVERSIONS and not field.is_nullable:
            self._numbers(element.fixed_format, value, is_flexible=is_flexible)
            return
        count = self._source.fresh(f"{field.name}_count")
        with self._unless_null(field, value, f"{count}, {value} = -1, ()"):
            self._source.line(f"{count} = len({value})")
        self._length("i", count, is_flexible=is_flexible)
        self.flush()
        row = self._source.fresh(f"{field.name}_row")
        if element.structure is not None and element.structure.is_fixed:
            self.structure(element.structure, row)
            self._source.line(f"out += b''.join([{self._packed()} for {row} in {value}])")
            return
        with self._source.block(f"for {row} in {value}:"):
            self.value(element, row, is_flexible=is_flexible)
            self.flush()

    def _numbers(self, number_format: str, value: str, *, is_flexible: bool) -> None:
        """Write an array of numbers, mostly with its length by one call."""
        count = self._source.fresh("count")
        self._source.line(f"{count} = len({value})")
        self.flush()
        packers = self._source.bind(NumberPackers("B" if is_flexible else "i", number_format), "packers")
        if not is_flexible:
            self._source.line(f"out += {packers}[{count}]({count}, *{value})")
            return
        with self._source.block(f"if {count} < 127:"):
            self._source.line(f"out += {packers}[{count}]({count} + 1, *{value})")
        with self._source.block("else:"):
            without_length = self._source.bind(NumberPackers("", number_format), "packers")
            self._source.line(f"out += pack_unsigned_varint({count} + 1)")
            self._source.line(f"out += {without_length}[{count}](*{value})")

    def _structure(self, field: FieldSchema, schema: StructureSchema, value: str) -> None:
        """A marker byte, -1 for null, comes before a structure that may be null (KIP-893)."""
        if not field.is_nullable:
            self.structure(schema, value)
            return
        self.flush()
        with self._source.block(f"if {value} is None:"):
            self._source.line(r"out += b'\xff'")
        with self._source.block("else:"):
            self._source.line(r"out += b'\1'")
            self.structure(schema, value)
            self.flush()

    def _unless_null(self, field: FieldSchema, value: str, for_null: str) -> AbstractContextManager[None]:
        """The block for a value that is not null, behind one with the line for null where the field may be."""
        if not field.is_nullable:
            return nullcontext()
        with self._source.block(f"if {value} is None:"):
            self._source.line(for_null)
        return self._source.block("else:")

    def _tagged_fields(self, schema: StructureSchema, values: str) -> None:
        """Write the tagged fields that do not have their default, in the order of their tags."""
        tags = self._source.fresh("tags")
        self.flush()
        self._source.line(f"{tags} = []")
        for tag, field in schema.tagged_fields:
            value = self._source.fresh(field.name)
            self._source.line(f"{value} = {self._expression(field, values)}")
            write = self._source.bind(_tagged_writer(field, self._title, is_flexible=True), "write_tagged")
            comparable = f"tuple({value})" if field.is_array else value
            with self._source.block(f"if {comparable} != {self._source.bind(field.default, 'default')}:"):
                self._source.line(f"{tags}.append(({tag}, {write}({value})))")
        self._source.line(f"out += pack_tagged_fields({tags})")
