"""Data files: written with checksums, read back by ranges, verified before native code sees the bytes."""
