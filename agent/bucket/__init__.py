"""Checks and observation of this agent's bucket: its owner, the agent's permissions, outages, full disks and damage.

In: answers of the object store. Out: errors that stop a start, metrics, and log lines. `storage` reads and writes
objects.
"""
