"""Whether transactions hold under faults, by the definitions of Jepsen's kafka workload, for real clients."""
