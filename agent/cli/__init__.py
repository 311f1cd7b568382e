"""`penstock COMMAND`: one module for each command, and what they print.

In: arguments, the environment, a settings file. Out: text or JSON on standard output, errors on standard error, an
exit status. Commands that need a running agent ask it through `agent.cli.clients`; `run` starts one.
"""
