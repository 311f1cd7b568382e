"""A codec for any message of Kafka's protocol, which reads Kafka's own definitions.

The definitions (common/message/*.json) are inside the kafka-clients jar. Messages are plain dicts keyed by the
definitions' names of fields; a field that is left out takes its default. Records travel as bytes (see `batches`).
"""

import json
import re
import struct
import uuid
import zipfile
from pathlib import Path
from typing import Any

Fields = list[dict[str, Any]]
Message = dict[str, Any]

FIXED = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}
WHOLE_LINE_COMMENT = re.compile(r"(?m)^\s*//.*$")
END_OF_LINE_COMMENT = re.compile(r"(?m)(?<=[,\]\[{}])\s*//.*$")


class Definitions:
    """Every request and response of one Kafka version."""

    def __init__(self, jar: Path) -> None:
        self._by_name: dict[str, Message] = {}
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.startswith("common/message/") and entry.endswith(".json"):
                    text = WHOLE_LINE_COMMENT.sub("", archive.read(entry).decode())
                    message = json.loads(END_OF_LINE_COMMENT.sub("", text))
                    self._by_name[message["name"]] = message

    def request(self, api: str) -> Message:
        return self._by_name[api + "Request"]

    def response(self, api: str) -> Message:
        return self._by_name[api + "Response"]

    def is_flexible(self, api: str, version: int) -> bool:
        return within(self.request(api).get("flexibleVersions"), version)


def kafka_definitions(jars: Path) -> Definitions:
    """The definitions in the kafka-clients jar among these."""
    (jar,) = (each for each in jars.glob("kafka-clients-*.jar") if "-test" not in each.name)
    return Definitions(jar)


def within(versions: str | None, version: int) -> bool:
    """Whether a version is in a range as the definitions write them: "3+", "0-8", "2" or "none"."""
    if versions is None or versions == "none":
        return False
    first, _, last = versions.removesuffix("+").partition("-")
    return int(first) <= version <= (32767 if versions.endswith("+") else int(last or first))


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63) if value < 0 else value << 1)


class Writer:
    """Encodes one message from a dict."""

    def __init__(self, message: Message, version: int) -> None:
        self._version = version
        self._is_flexible = within(message.get("flexibleVersions"), version)
        self._structs = {s["name"]: s["fields"] for s in message.get("commonStructs", [])}
        self._message = message

    def encode(self, body: dict[str, Any]) -> bytes:
        return self._struct(self._message["fields"], body, self._message["name"])

    def _struct(self, fields: Fields, value: dict[str, Any], where: str) -> bytes:
        if extra := set(value) - {f["name"] for f in fields} - {"_tags"}:
            raise ValueError(f"{where} has no field {sorted(extra)}")
        out = bytearray()
        tagged: list[tuple[int, bytes]] = []
        for field in fields:
            if not within(field["versions"], self._version):
                continue
            is_present = field["name"] in value
            v = value[field["name"]] if is_present else self._default(field)
            is_flexible = self._is_flexible
            if "flexibleVersions" in field:
                is_flexible = within(field["flexibleVersions"], self._version)
            if within(field.get("taggedVersions"), self._version):
                if is_present:
                    tagged.append((field["tag"], self._value(field, field["type"], v, is_flexible)))
                continue
            out += self._value(field, field["type"], v, is_flexible)
        if self._is_flexible:
            tagged = sorted([*tagged, *value.get("_tags", {}).items()])
            out += uvarint(len(tagged))
            for tag, data in tagged:
                out += uvarint(tag) + uvarint(len(data)) + data
        return bytes(out)

    def _default(self, field: dict[str, Any]) -> Any:
        kind = field["type"]
        text = field.get("default")
        if text == "null":
            return None
        if kind.startswith("[]"):
            return []
        if kind == "float64":
            return float(text or 0)
        if kind in FIXED:
            return int(str(text or 0), 0)
        if kind == "bool":
            return text in ("true", True)
        if kind == "string":
            return text or ""
        if kind == "uuid":
            return uuid.UUID(int=0)
        if kind in ("bytes", "records"):
            return None if "nullableVersions" in field else b""
        return {}

    def _value(self, field: dict[str, Any], kind: str, v: Any, is_flexible: bool) -> bytes:
        if kind in FIXED:
            return struct.pack(FIXED[kind], v)
        if kind == "bool":
            return b"\1" if v else b"\0"
        if kind == "uuid":
            return (v if isinstance(v, uuid.UUID) else uuid.UUID(int=0)).bytes
        if kind == "string":
            data = v.encode() if isinstance(v, str) else v
            return _with_length(data, None if v is None else len(data), is_flexible, ">h")
        if kind in ("bytes", "records"):
            return _with_length(v, None if v is None else len(v), is_flexible, ">i")
        if kind.startswith("[]"):
            items = None if v is None else b"".join(self._value(field, kind[2:], each, is_flexible) for each in v)
            return _with_length(items, None if v is None else len(v), is_flexible, ">i")
        fields = field.get("fields") or self._structs[kind]
        if _is_nullable_struct(field, self._version):
            return b"\xff" if v is None else b"\1" + self._struct(fields, v, field["name"])
        return self._struct(fields, v, field["name"])


class Reader:
    """Decodes one message to a dict. Raises `ValueError` where the bytes are not that message."""

    def __init__(self, message: Message, version: int, data: bytes, at: int = 0) -> None:
        self._version = version
        self._is_flexible = within(message.get("flexibleVersions"), version)
        self._structs = {s["name"]: s["fields"] for s in message.get("commonStructs", [])}
        self._message = message
        self._data = data
        self._at = at

    def decode(self) -> dict[str, Any]:
        """The message. Bytes behind it are an error."""
        body = self._struct(self._message["fields"])
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes left over")
        return body

    def _take(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._data):
            raise ValueError(f"wants {count} bytes at {self._at} of {len(self._data)}")
        self._at += count
        return self._data[self._at - count : self._at]

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _struct(self, fields: Fields) -> dict[str, Any]:
        out: dict[str, Any] = {}
        tags: dict[int, dict[str, Any]] = {}
        for field in fields:
            if not within(field["versions"], self._version):
                continue
            if within(field.get("taggedVersions"), self._version):
                tags[field["tag"]] = field
                continue
            is_flexible = self._is_flexible
            if "flexibleVersions" in field:
                is_flexible = within(field["flexibleVersions"], self._version)
            out[field["name"]] = self._value(field, field["type"], is_flexible)
        if self._is_flexible:
            self._tagged(tags, out)
        return out

    def _tagged(self, tags: dict[int, dict[str, Any]], out: dict[str, Any]) -> None:
        for _ in range(self._uvarint()):
            tag, size = self._uvarint(), self._uvarint()
            end = self._at + size
            if tag in tags:
                out[tags[tag]["name"]] = self._value(tags[tag], tags[tag]["type"], True)
            else:
                out.setdefault("_tags", {})[tag] = self._take(size)
            if self._at != end:
                raise ValueError(f"tag {tag} ends at {self._at}, not {end}")

    def _value(self, field: dict[str, Any], kind: str, is_flexible: bool) -> Any:
        if kind in FIXED:
            return struct.unpack(FIXED[kind], self._take(struct.calcsize(FIXED[kind])))[0]
        if kind == "bool":
            return self._take(1) != b"\0"
        if kind == "uuid":
            return uuid.UUID(bytes=self._take(16))
        if kind == "string":
            length = self._length(is_flexible, ">h")
            return None if length < 0 else self._take(length).decode()
        if kind in ("bytes", "records"):
            length = self._length(is_flexible, ">i")
            return None if length < 0 else self._take(length)
        if kind.startswith("[]"):
            length = self._length(is_flexible, ">i")
            return None if length < 0 else [self._value(field, kind[2:], is_flexible) for _ in range(length)]
        if _is_nullable_struct(field, self._version) and self._take(1) == b"\xff":
            return None
        return self._struct(field.get("fields") or self._structs[kind])

    def _length(self, is_flexible: bool, layout: str) -> int:
        if is_flexible:
            return self._uvarint() - 1
        length: int = struct.unpack(layout, self._take(struct.calcsize(layout)))[0]
        return length


def _with_length(data: bytes | None, length: int | None, is_flexible: bool, layout: str) -> bytes:
    """Bytes behind their length, or behind the mark of null."""
    if data is None or length is None:
        return uvarint(0) if is_flexible else struct.pack(layout, -1)
    return (uvarint(length + 1) if is_flexible else struct.pack(layout, length)) + data


def _is_nullable_struct(field: dict[str, Any], version: int) -> bool:
    return within(field.get("nullableVersions"), version) and not field["type"].startswith("[]")
