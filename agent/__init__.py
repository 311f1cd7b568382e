"""The process: sockets, loops, settings, wiring. Decisions are made in the packages below; here they are carried out.

Rule of the package: no `await` between reading and writing shared state; clocks, ids and tasks come from `agent.clock`,
`agent.ids` and `asyncio.TaskGroup`.
"""
