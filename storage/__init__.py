"""Chunks and the objects that hold them: the object format, the batcher, read plans, the object store port.

Adapters are rooms: `storage.s3`, `storage.embedded`, and decorators that retry, hedge, meter or fail.
"""
