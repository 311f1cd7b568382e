"""Consumer groups on their coordinator: the classic protocol and that of KIP-848.

`coordinator.groups` decides what a group does, without I/O. This package loads groups, runs their timers, and writes
every change to the ledger before a member gets an answer that follows from it (safety rule S13).
"""
