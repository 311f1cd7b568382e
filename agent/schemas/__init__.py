"""Schemas of the registry: Avro, JSON Schema, Protobuf; how each is parsed, and which are compatible."""
