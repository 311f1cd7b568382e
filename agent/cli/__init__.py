"""`penstock COMMAND`: one module for each command, and its output.

In: arguments, the environment, a settings file. Out: text or JSON on standard output, errors on standard error, an
exit status. Commands that need a running agent use it through `agent.cli.clients`; `run` starts one.
"""
