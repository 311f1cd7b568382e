"""The transactional workload: a generator of calls, and the client processes that make them."""
