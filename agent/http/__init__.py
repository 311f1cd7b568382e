"""The HTTP port: its server, who may ask, and `/api`. `port.py` is what it needs of the agent.

In: HTTP requests. Out: JSON. The catalog is `agent.http.iceberg`, the schema registry `agent.http.registry`.
"""
