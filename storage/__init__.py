"""Chunks and the objects that hold them: the object format, the batcher, read plans and the object store port.

Rule of the package: formats and plans are pure; only the adapters of the `ObjectStore` port do I/O.
"""
