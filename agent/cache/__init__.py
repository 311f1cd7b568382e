"""Chunks in memory: records that were just written or read, for consumers that read the same."""
