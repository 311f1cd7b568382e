"""Requests of groups that agents relay to each other, where one address leads to several agents.

In: requests of a client connection whose group another agent coordinates. Out: the coordinator's answers. The
coordinator serves a relay connection as it would serve the client's. Formats and what is relayed: `protocol.relay`.
"""
