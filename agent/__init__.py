"""The process: sockets, loops, settings, wiring. The packages below decide; this one carries out.

`agent.py` is one agent with its sockets, `broker.py` the parts that serve requests, `components.py` the wiring that
turns settings into both. Everything else is a room; each room's first lines say what it is for.

Rules of the package: no `await` between reading and writing shared state; time comes from `agent.runtime.clock`, ids
from `agent.runtime.ids`, tasks from `asyncio.TaskGroup` or `agent.runtime.supervisor`.
"""
