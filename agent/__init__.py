"""The process: sockets, loops, settings, wiring. The packages below decide; this one does the I/O.

`agent.py` is one agent with its sockets, `broker.py` the parts that serve requests, `components.py` the wiring that
turns settings into both. Each package says in its `__init__.py` what it is for.

There is no `await` between reading and writing shared state. Time comes from `agent.runtime.clock`, ids from
`agent.runtime.ids`, tasks from `asyncio.TaskGroup` or `agent.runtime.supervisor`.
"""
