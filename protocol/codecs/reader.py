"""Writes the source of a request's reader: fields in order, into one structure, without a loop over the schema.

A request may hold anything, so what it makes the reader allocate is bounded by its own size. Each length is checked
against the bytes that remain, and all arrays together have at most `ARRAY_LENGTH_MAX` elements. kio's own reader is not
used for requests: it believes an array's length (2**31 - 1 elements abort the process), wants read-only memory, and
rejects tagged fields that it does not know, which KIP-482 says to ignore.

Fields of a fixed width that follow each other are unpacked by one call, with the first byte of the length behind them.
Requests become structures of msgspec with the names of kio's fields, and values of the same types: to make one of
kio's frozen dataclasses takes ten times as long.

In a source `data` are the bytes, `size` is their number, `p` the position of what comes next, and `elements_left` how
many more elements the message may have.
"""

import struct
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, cast

import msgspec

from protocol.codecs.schema import FieldSchema, StructureSchema
from protocol.codecs.source import FunctionSource
from protocol.codecs.values import long_time, reject_array, reject_elements, reject_text, uuid_of
from protocol.limits import ARRAY_LENGTH_MAX
from protocol.wire import read_tagged_fields, read_unsigned_varint

RequestReader = Callable[[bytes], object]
"""Takes a request's body, and returns it as a structure. Raises `MalformedRequest`, or one of `wire.UNREADABLE`."""

_HELPERS: Final = {
    "read_tagged_fields": read_tagged_fields,
    "read_unsigned_varint": read_unsigned_varint,
    "reject_array": reject_array,
    "reject_elements": reject_elements,
    "reject_text": reject_text,
    "timedelta": timedelta,
    "long_time": long_time,
    "uuid_of": uuid_of,
}
_CONVERSIONS: Final = {
    "timedelta_i32": "timedelta(0, 0, 0, {})",  # milliseconds are the fourth
    "timedelta_i64": "long_time({})",
    "uuid": "uuid_of({})",
}


def request_reader(schema: StructureSchema, title: str) -> RequestReader:
    """The reader of a request. Bytes behind it are ignored, as in Kafka.

    Args:
        schema: the request's.
        title: what tracebacks call the source.
    """
    source = FunctionSource(title)
    with source.block("def read(data):"):
        source.line(f"elements_left = {ARRAY_LENGTH_MAX}")
        reads = _Reads(source, title)
        reads.begin()
        source.line(f"return {reads.structure(schema)}")
    return cast("RequestReader", source.compiled("read"))


def _tagged_reader(field: FieldSchema, title: str, *, is_flexible: bool) -> object:
    """The reader of a tagged field's bytes: takes and returns how many elements are left."""
    source = FunctionSource(f"{title}, {field.name}")
    with source.block("def read(data, elements_left):"):
        reads = _Reads(source, title)
        reads.begin()
        value = reads.field(field, is_flexible=is_flexible)
        reads.flush()
        source.line(f"return {value}, elements_left")
    return source.compiled("read")


def _structure_type(schema: StructureSchema) -> type[msgspec.Struct]:
    # Neither a field nor an element refers back: there is nothing in them for the cyclic collector.
    return msgspec.defstruct(schema.name, [field.name for field in schema.fields], frozen=True, gc=False)


def _default(field: FieldSchema) -> object:
    """The value of a tagged field that is left out."""
    if field.structure is None or field.is_array:
        return field.default
    return _structure_type(field.structure)(**cast("Mapping[str, object]", field.default))


class _Reads:
    """Appends the lines that read values. An expression that it returns is valid once `flush` was called."""

    def __init__(self, source: FunctionSource, title: str) -> None:
        self._source = source
        self._title = title
        self._formats: list[str] = []
        self._targets: list[str] = []

    def begin(self) -> None:
        """Append the first lines."""
        self._source.use(_HELPERS)
        self._source.line("size = len(data)")
        self._source.line("p = 0")

    def structure(self, schema: StructureSchema) -> str:
        """The expression of a structure, all of whose bytes are read."""
        values = {field.name: self.field(field, is_flexible=schema.is_flexible) for field in schema.plain_fields}
        if schema.is_flexible:
            values |= self._tagged_fields(schema)
        self.flush()
        structure_type = self._source.bind(_structure_type(schema), schema.name)
        return f"{structure_type}({', '.join(values[field.name] for field in schema.fields)})"

    def field(self, field: FieldSchema, *, is_flexible: bool) -> str:
        """The expression of a field's value."""
        if field.is_array:
            return self._array(field, is_flexible=is_flexible)
        if field.structure is not None:
            return self._nullable_structure(field.structure) if field.is_nullable else self.structure(field.structure)
        if field.fixed_format is not None:
            target = self._fixed(field.fixed_format, field.name)
            return _CONVERSIONS.get(field.kafka_type, "{}").format(target)
        return self._text(field, is_flexible=is_flexible)

    def flush(self) -> None:
        """Append the line that unpacks what is of fixed width since the last variable one."""
        if not self._targets:
            return
        if self._formats == ["B"]:
            self._source.line(f"{self._targets[0]} = data[p]")
            width = 1
        else:
            run = struct.Struct(">" + "".join(self._formats))
            unpack = self._source.bind(run.unpack_from, "unpack")
            self._source.line(f"{', '.join(self._targets)}, = {unpack}(data, p)")
            width = run.size
        self._source.line(f"p += {width}")
        self._formats.clear()
        self._targets.clear()

    def _fixed(self, value_format: str, name: str) -> str:
        target = self._source.fresh(name)
        self._formats.append(value_format)
        self._targets.append(target)
        return target

    def _length(self, value_format: str, name: str, *, is_flexible: bool) -> str:
        """The variable of a length, which is negative for null. A compact one is a varint of the length plus 1."""
        if not is_flexible:
            length = self._fixed(value_format, f"{name}_length")
            self.flush()
            return length
        length = self._fixed("B", f"{name}_length")
        self.flush()
        with self._source.block(f"if {length} > 127:"):
            self._source.line(f"{length}, p = read_unsigned_varint(data, p - 1)")
        self._source.line(f"{length} -= 1")
        return length

    def _text(self, field: FieldSchema, *, is_flexible: bool) -> str:
        is_string = field.kafka_type == "string"
        length = self._length("h" if is_string else "i", field.name, is_flexible=is_flexible)
        value, end = self._source.fresh(field.name), self._source.fresh("end")
        take = f"{value} = data[p:{end}]" + (".decode()" if is_string else "")
        if not field.is_nullable:
            self._source.line(f"{end} = p + {length}")
            with self._source.block(f"if not p <= {end} <= size:"):
                self._source.line(f"reject_text({length}, size - p)")
            self._source.line(take)
            self._source.line(f"p = {end}")
            return value
        with self._source.block(f"if {length} < 0:"):
            self._source.line(f"{value} = None")
        with self._source.block("else:"):
            self._source.line(f"{end} = p + {length}")
            with self._source.block(f"if {end} > size:"):
                self._source.line(f"reject_text({length}, size - p)")
            self._source.line(take)
            self._source.line(f"p = {end}")
        return value

    def _array(self, field: FieldSchema, *, is_flexible: bool) -> str:
        count = self._length("i", field.name, is_flexible=is_flexible)
        value = self._source.fresh(field.name)
        if not field.is_nullable:
            with self._source.block(f"if not 0 <= {count} <= size - p:"):
                self._source.line(f"reject_array({count}, size - p)")
            self._elements(field, count, value, is_flexible=is_flexible)
            return value
        with self._source.block(f"if {count} < 0:"):
            self._source.line(f"{value} = None")
        with self._source.block("else:"):
            with self._source.block(f"if {count} > size - p:"):
                self._source.line(f"reject_array({count}, size - p)")
            self._elements(field, count, value, is_flexible=is_flexible)
        return value

    def _elements(self, field: FieldSchema, count: str, value: str, *, is_flexible: bool) -> None:
        self._source.line(f"elements_left -= {count}")
        with self._source.block("if elements_left < 0:"):
            self._source.line("reject_elements()")
        element = field.element
        if element.fixed_format is not None and element.kafka_type not in _CONVERSIONS:
            unpack, width = self._source.bind(struct.unpack_from, "unpack"), struct.calcsize(f">{element.fixed_format}")
            self._source.line(f'{value} = {unpack}(f">{{{count}}}{element.fixed_format}", data, p)')
            self._source.line(f"p += {width} * {count}")
            return
        elements, append = self._source.fresh(f"{field.name}_list"), self._source.fresh("append")
        self._source.line(f"{elements} = []")
        self._source.line(f"{append} = {elements}.append")
        with self._source.block(f"for _ in range({count}):"):
            expression = self.field(element, is_flexible=is_flexible)
            self.flush()
            self._source.line(f"{append}({expression})")
        self._source.line(f"{value} = tuple({elements})")

    def _nullable_structure(self, schema: StructureSchema) -> str:
        """A marker byte, negative for null, comes first (KIP-893)."""
        marker, value = self._fixed("b", "marker"), self._source.fresh(schema.name.lower())
        self.flush()
        with self._source.block(f"if {marker} < 0:"):
            self._source.line(f"{value} = None")
        with self._source.block("else:"):
            self._source.line(f"{value} = {self.structure(schema)}")
        return value

    def _tagged_fields(self, schema: StructureSchema) -> dict[str, str]:
        """The expressions of the tagged fields. Nearly always there is none, which is one byte."""
        count = self._fixed("B", "tags_count")
        self.flush()
        tagged_fields = schema.tagged_fields
        values: dict[str, str] = {}
        for _, field in tagged_fields:
            values[field.name] = self._source.fresh(field.name)
            self._source.line(f"{values[field.name]} = {self._source.bind(_default(field), 'default')}")
        tags = self._source.fresh("tags")
        with self._source.block(f"if {count}:"):
            tags_end = tagged_fields[-1][0] + 1 if tagged_fields else 0
            self._source.line(f"{tags}, p = read_tagged_fields(data, p - 1, tags_end={tags_end})")
            for tag, field in tagged_fields:
                read = self._source.bind(_tagged_reader(field, self._title, is_flexible=True), "read_tagged")
                with self._source.block(f"if {tag} in {tags}:"):
                    self._source.line(f"{values[field.name]}, elements_left = {read}({tags}[{tag}], elements_left)")
        return values
