"""The produce path: from record batches to acknowledged offsets.

In: batches of a produce request. Out: base offsets, or an error for each partition. A batch is acknowledged after its
object is durable and its entry is ordered, not before.
"""
