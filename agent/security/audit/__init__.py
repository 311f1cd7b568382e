"""The audit log: events, their bounds, and the sinks on this machine.

In: events of log-ins, denials, changes and vended credentials. Out: one line of JSON each, to stderr or a file. The
sink that is a topic is `agent.produce.audit_topic`.
"""
