"""Set-up and checks of a checkout, run by the Makefile as `python3 -m tools.NAME`, or `tools.ROOM.NAME`.

Rule: the standard library alone, because these modules run before anything is installed.
"""
