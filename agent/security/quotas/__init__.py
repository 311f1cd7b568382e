"""The quotas of clients: what each has used, and for how long it is muted.

In: use of requests, the quotas of the state, entries of other agents. Out: times for which clients are throttled. Which
quota holds for a client is pure: `coordinator.security.quota_rules`.
"""
