"""The HTTP port: its server, its access control, and `/api`. `port.py` is the interface that it needs of the agent.

In: HTTP requests. Out: JSON. The catalog is `agent.http.iceberg`, the schema registry `agent.http.registry`.
"""
