"""Consumer groups as state machines without I/O: classic (its five states) and KIP-848.

In: members' requests and a time. Out: answers to give, timers to set, commands to write. Who calls: `agent.groups`.
"""
