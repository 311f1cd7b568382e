"""The simulated cluster: agents, connections, the ledger's server, the object store."""
