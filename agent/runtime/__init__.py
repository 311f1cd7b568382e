"""The process around everything: clock, ids, threads, supervised tasks, metrics, logs. Imports no other room."""
