"""The commands of `penstock`, one module each.

Rule: a module imports at its top only what is needed to parse its options; the rest when the command runs.
"""
