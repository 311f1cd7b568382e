"""Codecs that are generated: straight-line readers of requests and writers of responses, made from kio's schemas.

`schema` describes a message, `reader` and `writer` write the source of a function for it, `source` compiles that.
"""
