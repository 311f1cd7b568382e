"""The schema registry, compatible with Confluent's REST API. Formats and compatibility: `agent.schemas`."""
