"""ACLs, credentials, tokens and quotas as values, and the rules over them: pure, below the state.

In: what `coordinator.apply` puts into the state. Out: rights of a principal on a resource, quotas of a client.
"""
