"""Topics as tables for tests: buckets with archived files, made without a broker or read without one."""
