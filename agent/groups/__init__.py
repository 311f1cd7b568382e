"""Consumer groups on their coordinator: the classic protocol and that of KIP-848.

What a group does is decided in `coordinator.groups`, without I/O. This room loads groups, keeps their timers, and
writes every change to the ledger before a member learns of it (safety rule S13).
"""
