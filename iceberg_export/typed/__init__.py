"""Typed columns: derives a table's columns from the schemas of its records, and decodes the records into them.

No I/O, no clock, no registry: the input is texts of schemas and bytes of records, the output is columns.
"""
