"""Drawn requests of all served APIs and versions against a running agent, with ids that earlier answers gave.

`draw` makes requests, `learnt` keeps what answers told, `batches` makes record batches, `lane` is one client, `sweep`
runs many lanes and judges the agent. `python -m tests.requests` is the command for long runs.
"""
