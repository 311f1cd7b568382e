"""The effect of each command on the state: deterministic, total, without I/O (safety rules S3 and S5).

In: a state and an entry. Out: the changed state and the outcome of each command. Every agent computes the same, so any
change of behaviour raises the rules' version (`coordinator.commands.rules`).
"""
