"""Entries of topics' tables in catalogs of others, through PyIceberg.

Rule: PyIceberg is imported here alone, and late: an agent without followers neither needs it nor loads it.
"""
