"""One module for each Kafka API, and nothing else.

A handler turns a decoded request into the fields of a response, and uses the rooms below for that. It imports no other
handler; what several share is in `agent.request`. The table of APIs and versions is `protocol.api_versions`. The codec
is around all handlers, in `agent.server.dispatch`, which finds them by their `API_KEY`.
"""
