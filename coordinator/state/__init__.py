"""The state of a cluster: topics, partitions' chunk indexes, transactions, groups, sessions, objects.

Only `coordinator.apply` changes it. Fields that follow from others are marked "derived".
"""
