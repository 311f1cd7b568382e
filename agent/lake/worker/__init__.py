"""A process beside the agent for archive passes and compactions, so that they hold up no request.

`worker` is the agent's side, `process` the program of the other one, `messages` what goes between them, and `program`
says whether both are the same program.
Decision: docs/adr/0054-passes-in-a-process-of-their-own.md.
"""
