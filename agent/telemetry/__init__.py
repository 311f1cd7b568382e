"""Metrics that clients push (KIP-714): subscriptions, and the series they become."""
