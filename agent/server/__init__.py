"""Kafka's port: listeners, connections, the memory they share, and dispatch to handlers.

In: bytes of clients. Out: answers in the order of their requests, for each connection. The memory that slow and silent
clients can occupy is bounded.
"""
