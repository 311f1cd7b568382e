"""Options: names, sources (command line, environment, file), types, and the complete `Settings` that they make.

In: text. Out: checked values; an error names the option and its source. Imports no other package of `agent`.
"""
