"""Requests as a proxy reads them, in literal bytes."""

END_TXN_V1 = bytes.fromhex("001a 0001 00000007 0002 6131 0002 7431 0000000000000fa0 0003 01")
"""Client a1, transactional id t1, producer 4000 at epoch 3, commit."""
END_TXN_V3 = bytes.fromhex("001a 0003 00000008 0002 6131 00 03 7431 0000000000000fa0 0003 00 00")
"""The first flexible version; abort."""
PRODUCE_V9 = bytes.fromhex("0000 0009 00000009 ffff 00 00 ffff 00000bb8 01 00")
"""Without client id and transactional id."""
