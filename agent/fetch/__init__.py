"""The fetch path: from a fetch request to the record batches of its answer.

In: partitions with offsets and limits. Out: batches from memory, intake objects or archived files, in order of offsets,
never past the last stable offset for read_committed consumers. `planner` decides each step of a fetch, and does no I/O;
`fetch_path` takes the step. `chunk_reader` reads chunks. `wait` ends the wait for new records early.
"""
