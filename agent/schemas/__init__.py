"""Schemas of the registry (Avro, JSON Schema, Protobuf): parsing and compatibility."""
