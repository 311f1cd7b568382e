"""Topics, configs and the cluster as Kafka's admin API shows and changes them.

In: an admin handler's request. Out: commands for the ledger, or descriptions of the state. It knows nothing of Kafka's
bytes.
"""
