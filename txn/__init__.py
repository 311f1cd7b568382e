"""The rules of producers and transactions, as pure functions over plain values.

Rule of the package: nothing here does I/O, reads a clock or knows the ledger.
Specification: KIP-98, KIP-360, KIP-890; org.apache.kafka.storage.internals.log.ProducerAppendInfo (Kafka 4.3).
"""
