"""Messages as plain values: what a handler returns for a response, and what is compared of a request."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import IntEnum

import msgspec

from tests.support.records.kio_messages import KioEntity


def values_of(entity: KioEntity, *, has_defaults: bool = True) -> Mapping[str, object]:
    """The fields of an entity of kio's. Structures are dictionaries, arrays are lists.

    Args:
        entity: a message, or a structure in one.
        has_defaults: whether fields with their schema's default are there.
    """
    named = [(field, getattr(entity, field.name)) for field in fields(entity)]
    return {
        field.name: _plain(value, has_defaults=has_defaults)
        for field, value in named
        if has_defaults or value != field.default
    }


def plain_fields(message: object) -> object:
    """A request as plain values, of kio's or of a generated reader's, so that both can be compared."""
    if isinstance(message, msgspec.Struct):
        return {name: plain_fields(getattr(message, name)) for name in message.__struct_fields__}
    if isinstance(message, tuple):
        return tuple(map(plain_fields, message))
    if is_dataclass(message):
        return {field.name: plain_fields(getattr(message, field.name)) for field in fields(message)}
    return message


def _plain(value: object, *, has_defaults: bool) -> object:
    if isinstance(value, tuple):
        return [_plain(element, has_defaults=has_defaults) for element in value]
    if is_dataclass(value) and not isinstance(value, IntEnum):
        return values_of(value, has_defaults=has_defaults)
    return value
