"""How each row of a benchmark is measured on one broker, once: brokers, clusters, groups, transactions."""
