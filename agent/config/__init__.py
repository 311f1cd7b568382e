"""Options: names, sources (command line, environment, file), types, and the complete `Settings` they make.

In: text. Out: checked values; an option that does not fit is reported with its source. Imports no other room.
"""
