"""A process beside the agent for archive passes and compactions, so that they hold up no request.

`worker` is the agent's side, `process` the program of the other one, `messages` what goes between them.
Decision: docs/adr/0054-passes-in-a-process-of-their-own.md.
"""
