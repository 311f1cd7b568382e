"""The one package of an installed Penstock: the command, and the format for Spark, in front of the packages in `app`.

Rule: nothing here is imported by those packages; a checkout, where they lie beside this one, works the same way.
"""
