"""Micro-benchmarks: one part of Penstock alone, on one core. `make bench-micro` runs them one after the other."""
