"""The proxy's process: links on loopback, and a control connection that says what is wrong with them.

    python -m tests.torture.proxy SEED

It prints `ready PORT`, takes one control connection there, and ends with it, so that nothing is left behind. A line of
JSON is a command, and is answered by a line of JSON: `{"do": "open", "link": NAME, "upstream": PORT}` -> `{"port": N}`
(`"is_store": true` for a link that reads S3's requests); `{"do": "set", "link": NAME, "fault": {...} or null}`, where a
store's fault is `{NAME: probability}`; `{"do": "counts"}` -> how often each of a store link's faults struck.
"""

import asyncio
import json
import random
import sys
from typing import Any

from tests.torture.link import Link, LinkFault
from tests.torture.store_link import StoreFault, StoreLink

Command = dict[str, Any]
"""As JSON has it."""


class Proxy:
    """All links, by name."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._links: dict[str, Link | StoreLink] = {}
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        server = await asyncio.start_server(self._control, "127.0.0.1", 0)
        print("ready", server.sockets[0].getsockname()[1], flush=True)
        await self._is_over.wait()

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(json.dumps(await self._do(json.loads(line))).encode() + b"\n")
            await writer.drain()
        writer.close()
        self._is_over.set()

    async def _do(self, command: Command) -> Command:
        match command:
            case {"do": "open", "link": str(name), "upstream": int(upstream)}:
                chance = random.Random(self._chance.random())
                link = StoreLink(upstream, chance) if command.get("is_store") else Link(upstream, chance)
                self._links[name] = link
                return {"port": await link.open()}
            case {"do": "set", "link": str(name), "fault": fault}:
                match self._links[name]:
                    case Link() as link:
                        link.set(None if fault is None else LinkFault(**fault))
                    case StoreLink() as link:
                        link.set({StoreFault(kind): part for kind, part in (fault or {}).items()})
                return {}
            case {"do": "counts"}:
                return {name: link.struck for name, link in self._links.items() if isinstance(link, StoreLink)}
            case _:
                raise ValueError(f"no command: {command}")


if __name__ == "__main__":
    asyncio.run(Proxy(int(sys.argv[1])).run())
