"""Conversations of transactional producers, and pairs of transitions."""
