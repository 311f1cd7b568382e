"""Value elision: a file leaves out the bytes of values that its typed columns reproduce, and its reader encodes them.

`value_elision` chooses them, `value_reconstruction` brings them back, and both use `flat_avro_writer`.
"""
