"""Clients of authentication, as tests write them."""
