# Of etcd's messages what tests use. Source: etcd's api/authpb/auth.proto (v3.6).

from typing import ClassVar

class Permission:
    READWRITE: ClassVar[int]
    def __init__(self, *, permType: int, key: bytes, range_end: bytes) -> None: ...
