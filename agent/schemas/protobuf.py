"""Parses Protobuf schemas: texts, which protoc compiles, or descriptors that clients derive from a message class.

Rule: the descriptor is the schema, so a text and its descriptor are equal. Imports are resolved in the references and
in the files that every Protobuf client has; nothing else is read. A descriptor comes as base64, as Confluent's clients
for Python, Go and .NET register messages. Specification: Protocol Buffers language guides, including editions;
descriptor.proto. `agent.schemas.protobuf_reading` compares them.
"""
# protoc is a compiled module without stubs.
# pyright: reportAttributeAccessIssue=false

import ast
import base64
import binascii
import importlib.util
import re
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from grpc_tools import _protoc_compiler

from agent.schemas.parsed import InvalidSchema, NamedText, Parsed
from agent.schemas.protobuf_builtin import BUILTIN_FILES
from agent.schemas.protobuf_reading import faults_reading
from coordinator.commands.registry import SchemaType

SERIALIZED = "serialized"
"""The API's format for a descriptor."""
BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
"""Matches no text of a schema: that has a semicolon or a brace."""
FILE_NAME = re.compile(r"(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9_.\-]+(?:/[A-Za-z0-9_.\-]+)*")
"""The names that references may have: relative paths that stay inside the compiler's folder."""
OWN_NAME = "schema.proto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufSchema:
    """Implements `Parsed`."""

    text: str
    file: FileDescriptorProto
    files: Mapping[str, FileDescriptorProto]
    """The schemas that it imports, directly or not, by name."""
    schema_type: SchemaType = SchemaType.PROTOBUF

    @property
    def normalized(self) -> str:
        return self.text

    def faults_reading(self, writer: Parsed) -> list[str]:
        assert isinstance(writer, ProtobufSchema)
        return faults_reading(reader=(self.file, self.files.values()), writer=(writer.file, writer.files.values()))

    def is_same(self, other: Parsed) -> bool:
        return isinstance(other, ProtobufSchema) and _without_name(self.file) == _without_name(other.file)

    def formatted(self, text_format: str) -> str:
        if text_format != SERIALIZED:
            return self.text
        return base64.standard_b64encode(self.file.SerializeToString()).decode("ascii")


def parse_protobuf(text: str, references: Sequence[NamedText] = ()) -> ProtobufSchema:
    """Read a schema whose imports are named by `references`. Raises `InvalidSchema`."""
    described: dict[str, FileDescriptorProto] = {}
    texts: dict[str, str] = {}
    for reference in references:
        if not FILE_NAME.fullmatch(reference.name):
            raise InvalidSchema(f"{reference.name!r} is not a valid name of an imported file")
        if BASE64.fullmatch(reference.text):
            described[reference.name] = _read_descriptor(reference.text, reference.name)
        else:
            texts[reference.name] = reference.text
    if BASE64.fullmatch(text):
        return _parse_descriptor(text, texts, described)
    if described:
        raise InvalidSchema(
            f"{min(described)!r} was registered as a descriptor, and a text cannot import it: register its text"
        )
    files = compile_text(text, texts)
    own = files.pop(next(reversed(files)))
    return ProtobufSchema(text=text, file=own, files=files)


def _parse_descriptor(
    text: str, texts: Mapping[str, str], described: Mapping[str, FileDescriptorProto]
) -> ProtobufSchema:
    own = _read_descriptor(text, None)
    files: dict[str, FileDescriptorProto] = {}
    for name, content in texts.items():
        compiled = compile_text(content, {each: other for each, other in texts.items() if each != name})
        last = compiled.pop(next(reversed(compiled)))
        last.name = name
        files |= {**compiled, name: last}
    files |= described
    if own.name in files:
        raise InvalidSchema(f"its name {own.name!r} is also the name of one of its references")
    missing = {name for each in (own, *files.values()) for name in each.dependency} - files.keys() - {own.name}
    if missing:
        imports = "".join(f'import public "{name}";\n' for name in sorted(missing))
        builtin = compile_text(f'syntax = "proto3";\n{imports}', {})
        builtin.popitem()
        files |= builtin
    _check_together([own, *files.values()])
    return ProtobufSchema(text=text, file=own, files=files)


def compile_text(text: str, imports: Mapping[str, str]) -> dict[str, FileDescriptorProto]:
    """The descriptors of all files that a text imports, and last its own. Raises `InvalidSchema`."""
    own_name = OWN_NAME
    while own_name in imports:
        own_name = f"_{own_name}"
    with tempfile.TemporaryDirectory(prefix="penstock-schema-") as folder:
        for name, content in {**BUILTIN_FILES, **imports, own_name: text}.items():
            path = Path(folder, name)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_with_syntax(content), encoding="utf-8")
            except (OSError, UnicodeEncodeError) as error:
                raise InvalidSchema(f"{name!r} cannot be written to be compiled: {error}") from error
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = _protoc_compiler.get_protos(own_name.encode(), [folder.encode(), *_include_folders()])
        except _protoc_compiler.ProtocErrors as errors:
            raise InvalidSchema("; ".join(_error_text(error) for error in errors.errors())) from errors
    files = [_descriptor_in(code) for _, code in made]
    own = next(each for each in files if each.name == own_name)
    others = {each.name: each for each in files if each.name != own_name}
    return {**others, own_name: own}


def _with_syntax(text: str) -> str:
    """The text with a syntax statement, on the same lines.

    Without one protoc assumes proto2, and writes a warning to the agent's standard error.
    """
    rest = text.lstrip("\ufeff \t\r\n")
    while rest.startswith(("//", "/*")):
        end = "\n" if rest.startswith("//") else "*/"
        rest = rest.partition(end)[2].lstrip()
    return text if rest.startswith(("syntax", "edition")) else f'syntax = "proto2"; {text}'


def _error_text(error: "_protoc_compiler.ProtocError") -> str:
    """A message of protoc, whose lines and columns count from 0."""
    name, message = (
        part.decode(errors="replace") if isinstance(part, bytes) else part for part in (error.filename, error.message)
    )
    return f"{name}, line {error.line + 1}, column {error.column + 1}: {message}"


@cache
def _include_folders() -> tuple[bytes, ...]:
    """The folders with the files of google/protobuf and google/type."""
    tools = importlib.util.find_spec("grpc_tools")
    types = importlib.util.find_spec("google.type")
    assert tools is not None
    assert types is not None
    assert tools.submodule_search_locations is not None
    assert types.submodule_search_locations is not None
    with_types = {Path(location).parent.parent for location in types.submodule_search_locations}
    with_tools = {Path(location) / "_proto" for location in tools.submodule_search_locations}
    return tuple(str(folder).encode() for folder in (*sorted(with_tools), *sorted(with_types)))


def _descriptor_in(code: bytes) -> FileDescriptorProto:
    """The descriptor in generated Python code: the only output of protoc that needs no file."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Call(func=ast.Attribute(attr="AddSerializedFile"), args=[ast.Constant(value=bytes() as data)]):
                return FileDescriptorProto.FromString(data)
    raise AssertionError("the code of protoc has no descriptor")


def _read_descriptor(text: str, name: str | None) -> FileDescriptorProto:
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=False))
    except (binascii.Error, DecodeError) as error:
        raise InvalidSchema(f"it is neither a text nor a descriptor in base64: {error}") from error
    if name is not None:
        file.name = name
    elif not file.name:
        file.name = OWN_NAME
    return file


def _check_together(files: Iterable[FileDescriptorProto]) -> None:
    """Raise `InvalidSchema` unless a client can build all descriptors."""
    pool = DescriptorPool()
    waiting = {file.name: file for file in files}
    while waiting:
        ready = [name for name, file in waiting.items() if not any(each in waiting for each in file.dependency)]
        if not ready:
            raise InvalidSchema(f"files import each other: {', '.join(sorted(waiting))}")
        for name in ready:
            try:
                pool.Add(waiting.pop(name))
                pool.FindFileByName(name)
            except (TypeError, KeyError) as error:
                raise InvalidSchema(f"the descriptor {name!r} cannot be built: {error}") from error


def _without_name(file: FileDescriptorProto) -> bytes:
    copy = FileDescriptorProto()
    copy.CopyFrom(file)
    copy.ClearField("name")
    return bytes(copy.SerializeToString(deterministic=True))
