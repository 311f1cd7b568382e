"""The ledger in etcd: keys, requests, sessions as leases, and whether it is still the same ledger."""
