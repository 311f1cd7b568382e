"""Which form an entry or a snapshot has under which version of the rules (safety rule S3).

A wire struct describes the newest form. A field that a later version brought stands at the end, has a default, and is
annotated with `since`; a struct that one brought says so in `SINCE`. Everything else is of `RULES_FIRST`.

Rule: bytes are written in the form of the version in force, so that every live agent can read them, and read in the
form of every version that this program knows. Nothing is left out silently: what the form in force has no place for
raises, unless it is the field's default. Bytes of a form that is not known are rejected: nothing follows the last field
of a `WireStruct`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, cast, get_args

from msgspec import NODEFAULT, Meta, Struct, inspect
from msgspec.structs import FieldInfo, fields

from coordinator.commands.rules import RULES_FIRST

_SINCE = "since"


class NewerForm(ValueError):
    """Something has no place in the form of the rules in force."""


class WireStruct(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A part of a ledger entry or a snapshot: an array, in which nothing follows the last field.

    msgspec ignores what follows unless it is forbidden, of arrays as of objects: an agent would lose a field that a
    newer one wrote, and compute another state without a word.
    """

    SINCE: ClassVar[int] = RULES_FIRST
    """The first version of the rules that has this struct."""
    SECRET_FIELDS: ClassVar[frozenset[str]] = frozenset()
    """The fields that nothing shows: a struct that has some has a `repr` of its own without them."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: object
    since: int
    default: object
    newest: int
    """The latest version that brought something to what the field holds."""


def since(rules_version: int) -> Meta:
    """Marks the field of a wire struct: `Annotated[TYPE, since(RULES_...)] = DEFAULT`."""
    return Meta(extra={_SINCE: rules_version})


def form_needed(value: object) -> int:
    """The first version of the rules in whose form a wire struct, or a list of them, has a place."""
    if isinstance(value, WireStruct):
        kind = type(value)
        needed = kind.SINCE
        for field in _newer_fields(kind):
            part: object = getattr(value, field.name)
            if field.since > needed and part != field.default:
                needed = field.since
            if field.newest > needed:
                needed = max(needed, form_needed(part))
        return needed
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return max((form_needed(item) for item in items), default=RULES_FIRST)
    return RULES_FIRST


def in_form(value: object, rules_version: int) -> object:
    """The value that the encoder writes for a wire struct, or for a list of them, under a version of the rules.

    Raises `NewerForm` for what that version's form has no place for.
    """
    if isinstance(value, WireStruct):
        kind = type(value)
        if _newest(kind) <= rules_version:
            return value
        if rules_version < kind.SINCE:
            raise NewerForm(f"{kind.__name__} comes with rules {kind.SINCE}, {rules_version} are in force")
        tag = kind.__struct_config__.tag
        parts = [
            in_form(part, rules_version) if is_newer else part
            for _, part, is_newer in parts_in_form(value, rules_version)
        ]
        return parts if tag is None else [tag, *parts]
    if isinstance(value, list | tuple):
        return [in_form(item, rules_version) for item in cast("Sequence[object]", value)]
    return value


def parts_in_form(value: WireStruct, rules_version: int) -> Iterator[tuple[str, object, bool]]:
    """The fields that a struct has in the form of a version: name, value, and whether `in_form` has to look into it.

    Raises `NewerForm` for a field that this form lacks, unless it holds its default.
    """
    for field in _fields(type(value)):
        part: object = getattr(value, field.name)
        if field.since <= rules_version:
            yield field.name, part, field.newest > rules_version
        elif part != field.default:
            kind = type(value).__name__
            raise NewerForm(f"{kind}.{field.name} comes with rules {field.since}, {rules_version} are in force")


def layout_in_form(kind: type[WireStruct], rules_version: int) -> list[tuple[str, str]]:
    """The fields that a struct has in the form of a version: name, and which values MessagePack may hold there.

    It names no Python type, so it changes with the bytes alone: lists and tuples are written alike, and a nested
    struct is an array of its fields.
    """
    return [
        (field.name, _layout(inspect.type_info(field.type), rules_version))
        for field in _fields(kind)
        if field.since <= rules_version
    ]


def _layout(kind: inspect.Type, rules_version: int) -> str:
    match kind:
        case inspect.Metadata():
            return _layout(kind.type, rules_version)
        case inspect.StructType(cls=struct):
            assert issubclass(struct, WireStruct), f"{struct.__name__} is no WireStruct"
            tag = struct.__struct_config__.tag
            if tag is not None:  # one of many: it has a layout of its own
                return f"tag {tag}"
            return _array(layout for _, layout in layout_in_form(struct, rules_version))
        case inspect.TupleType():
            return _array(_layout(item, rules_version) for item in kind.item_types)
        case inspect.ListType() | inspect.VarTupleType():
            return f"[{_layout(kind.item_type, rules_version)}]"
        case inspect.UnionType():
            return " | ".join(
                sorted(_layout(item, rules_version) for item in kind.types if _is_in(item, rules_version))
            )
        case inspect.EnumType():
            return f"any of {sorted(member.value for member in kind.cls)}"
        case inspect.MemoryViewType():
            return "bytes()"
        case _:
            bounds = [(name, getattr(kind, name)) for name in kind.__struct_fields__]
            said = ", ".join(f"{name}={value}" for name, value in bounds if value is not None)
            return f"{type(kind).__name__.removesuffix('Type').lower()}({said})"


def _is_in(kind: inspect.Type, rules_version: int) -> bool:
    """Whether the form of a version has this member of a union."""
    return not isinstance(kind, inspect.StructType) or getattr(kind.cls, "SINCE", RULES_FIRST) <= rules_version


def _array(items: Iterable[str]) -> str:
    return f"({', '.join(items)})"


@cache
def _fields(kind: type[WireStruct]) -> tuple[_Field, ...]:
    described = tuple(
        _Field(
            name=info.name,
            type=info.type,
            since=_since_of(info),
            default=_default_of(info),
            newest=max(map(_newest, _kinds_in(info.type)), default=RULES_FIRST),
        )
        for info in fields(kind)
    )
    versions = [field.since for field in described]
    assert versions == sorted(versions), f"{kind.__name__}: a newer field stands before an older one"
    is_optional = all(field.default is not NODEFAULT for field in described if field.since > RULES_FIRST)
    assert is_optional, f"{kind.__name__}: a newer field has no default"
    return described


@cache
def _newer_fields(kind: type[WireStruct]) -> tuple[_Field, ...]:
    """The fields that a version later than the struct's own brought, or brought something to."""
    return tuple(field for field in _fields(kind) if max(field.since, field.newest) > kind.SINCE)


@cache
def _newest(kind: type[WireStruct]) -> int:
    return max([kind.SINCE, *(max(field.since, field.newest) for field in _fields(kind))])


def _since_of(info: FieldInfo) -> int:
    extras = [part.extra for part in get_args(info.type) if isinstance(part, Meta) and part.extra is not None]
    return max((extra[_SINCE] for extra in extras if _SINCE in extra), default=RULES_FIRST)


def _default_of(info: FieldInfo) -> object:
    return info.default_factory() if info.default_factory is not NODEFAULT else info.default


def _kinds_in(hint: object) -> Iterator[type[WireStruct]]:
    if isinstance(hint, type) and issubclass(hint, WireStruct):
        yield hint
    for part in get_args(hint):
        yield from _kinds_in(part)
