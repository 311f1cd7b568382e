"""Records as typed columns: the columns that schemas ask for, what becomes of them as schemas change, and the values.

Rule: no I/O, no clock, no registry: texts of schemas and bytes of records come in, columns come out.
"""
