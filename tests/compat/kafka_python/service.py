"""Stands in for the `test/service.py` that kafka-python's source distribution lacks: the broker is not theirs to start.

Rule: only what its fixtures call for a broker that is already there; nothing else can be asked of it.
"""


class ExternalService:
    """A broker that runs by itself."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None:
        """It runs."""

    def close(self) -> None:
        """It goes on running."""

    def dump_logs(self) -> None:
        """Its logs are elsewhere."""


class SpawnedService:
    """A broker of its own, which these runs never start."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        raise RuntimeError("these tests run against a broker that is already there")
