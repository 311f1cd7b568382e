"""The common part of `penstock run` and `penstock agent`: one process or several that serve until they are stopped.

In: a command's values. Out: a running agent, its banner and `ready` line, and the exit code.
"""
