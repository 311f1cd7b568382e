"""One client of the sweep: sends a drawn request, reads its answer as kio does, and learns from it."""

import asyncio
import struct
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass

from kio.index import load_response_schema
from kio.serial import entity_reader
from kio.serial.errors import OutOfBoundValue

from protocol.api_versions import API_VERSIONS
from tests.requests.draw import Drawn, RequestDrawer
from tests.support.records.kio_messages import KioEntity

ANSWER_SECONDS_MAX = 30.0
RECENT_MAX = 5
API_NAMES = {int(row.api_key): row.name for row in API_VERSIONS}
SENTINEL_FIRST = 0x5A500000
VERSIONS_KEY = 18
NO_ENTITY = object()
"""An answer that is right and that kio does not read."""
API_VERSIONS_REQUEST = struct.pack(">ihh", 10, VERSIONS_KEY, 0) + b"%b" + struct.pack(">h", 0)


class Fault(AssertionError):
    """A property of the sweep does not hold. The message ends with the requests that it may come from."""


@dataclass(slots=True)
class Lane:
    """`has_erred` says whether the agent has written an ERROR line."""

    port: int
    number: int
    seed: int
    has_erred: Callable[[], bool]
    recent: deque[Drawn] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))
    counts: Counter[str] = field(default_factory=Counter)
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, count: int) -> None:
        drawer = RequestDrawer(self.seed * 1_000 + self.number)
        for number in range(count):
            drawn = drawer.draw(number)
            self.recent.append(drawn)
            try:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    response = await self._ask(drawn, number)
            except TimeoutError:
                raise self.fault("neither answered nor closed") from None
            if self.has_erred():
                raise self.fault("the agent has written an ERROR line")
            if response is not None and response is not NO_ENTITY:
                drawer.learnt.learn(drawn.entity, response)
        self.abort()

    def fault(self, reason: str) -> Fault:
        requests = "\n".join(f"  {drawn}" for drawn in self.recent)
        return Fault(f"seed {self.seed}, lane {self.number}: {reason}; its last requests, the newest last:\n{requests}")

    def abort(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _ask(self, drawn: Drawn, number: int) -> KioEntity | None:
        """The answer; None where there is none, or the connection was closed instead."""
        sentinel = struct.pack(">i", SENTINEL_FIRST + number)
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self.port)
            reader, writer = self._streams
            writer.write(struct.pack(">i", len(drawn.data)) + drawn.data + API_VERSIONS_REQUEST % sentinel)
            answer = None
            while True:
                data = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                if data[:4] == sentinel:
                    self.counts["answered" if answer is not None else "unanswered"] += 1
                    return answer
                answer = self._read(drawn, data)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.counts["closed"] += 1
            self.abort()
            return None

    def _read(self, drawn: Drawn, data: bytes) -> KioEntity:
        """The answer as kio reads it, to its last byte: in the version that was asked for."""
        version = struct.unpack_from(">h", drawn.data, 2)[0]  # which may have been mutated
        api_key = struct.unpack_from(">h", drawn.data)[0]
        if api_key == VERSIONS_KEY and not 0 <= version <= 4:
            version = 0  # KIP-511
        schema = load_response_schema(api_key, version)
        try:
            _, position = entity_reader(schema.__header_schema__)(data, 0)
            response, size = entity_reader(schema)(data, position)
        except OutOfBoundValue as error:
            # Kafka writes -1 where there is no time: a token that is not known, a transaction that has not begun.
            if "negative timestamp" not in str(error):
                raise self.fault(f"kio cannot read the answer ({error}): {data.hex()}") from error
            self.counts["beyond kio"] += 1
            return NO_ENTITY
        except Exception as error:
            raise self.fault(f"kio cannot read the answer ({type(error).__name__}: {error}): {data.hex()}") from error
        if position + size != len(data):
            raise self.fault(f"kio reads {position + size} bytes of an answer of {len(data)}: {data.hex()}")
        self.counts.update(f"{API_NAMES[api_key]} {code}" for code in _errors(response))
        return response


def _errors(entity: KioEntity) -> set[int]:
    """Every error code in an answer, at any depth."""
    found = set[int]()
    for each_field in fields(entity):
        value = getattr(entity, each_field.name)
        if each_field.name.endswith("error_code"):
            found.add(int(value))
        for each in value if isinstance(value, tuple) else (value,):
            if is_dataclass(each):
                found |= _errors(each)
    return found
