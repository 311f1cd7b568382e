"""Data files: written with checksums, read in ranges, and verified before native code sees their bytes."""
