"""Ledger commands and entries as tests write them."""
