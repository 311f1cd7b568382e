"""The fetch path: from a fetch request to the record batches of its answer.

In: partitions with offsets and limits. Out: batches from memory, intake objects or archived files, in order of offsets,
never past the last stable offset for read_committed consumers. Reads are planned first (`chunk_plan`), then made
(`chunk_reader`). `wait` ends the wait for new records early.
"""
