"""Topics, configs and the cluster as Kafka's admin API shows and changes them.

In: an admin handler's request. Out: commands for the ledger, or descriptions of the state. May import ledger rooms,
config and runtime; knows nothing of Kafka's bytes.
"""
