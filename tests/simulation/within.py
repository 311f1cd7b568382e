"""A deadline in the world's time, after which the run is unsound."""

import asyncio
from collections.abc import Callable

from tests.simulation.history import Violation


class Within:
    """A block that must end in time."""

    def __init__(self, seconds: float, late: Callable[[], None]) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._late = late

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._timeout.__aexit__(*error)  # type: ignore[arg-type]
        except TimeoutError as late:
            self._late()
            raise Violation from late
