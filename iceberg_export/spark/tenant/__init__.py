"""Reads of tenants: one topic's records through an agent, with the rights of a user and without keys of the bucket."""
