# Of protobuf what Penstock uses; it ships no types.

from collections.abc import Iterator

class UnknownField:
    field_number: int
    data: int

class UnknownFieldSet:
    def __init__(self, message: object) -> None: ...
    def __iter__(self) -> Iterator[UnknownField]: ...
