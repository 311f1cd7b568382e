"""Configs of topics, brokers, groups and client metrics: names, types, defaults, validation."""
