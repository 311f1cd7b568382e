"""Simulated clients: producers, consumers, group members, administrators, transactional programs."""
