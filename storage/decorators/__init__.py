"""Stores around a store: retries, hedged reads, metrics, planned failures, routes by prefix."""
