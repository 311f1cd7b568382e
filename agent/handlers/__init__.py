"""One module for each Kafka API, and nothing else.

A handler turns a decoded request into an answer by means of the rooms below it. It imports no other handler; what
several share is in `agent.request`. The table of APIs and versions is `protocol.api_versions`.
"""
