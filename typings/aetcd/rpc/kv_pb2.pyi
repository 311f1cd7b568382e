# Of etcd's messages what Penstock uses. Source: etcd's api/mvccpb/kv.proto (v3.6).

class KeyValue:
    key: bytes
    create_revision: int
    mod_revision: int
    version: int
    value: bytes
    lease: int
    def __init__(
        self,
        *,
        key: bytes = ...,
        value: bytes = ...,
        create_revision: int = ...,
        mod_revision: int = ...,
        version: int = ...,
    ) -> None: ...

class Event:
    kv: KeyValue
