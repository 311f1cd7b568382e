"""Delegation tokens (KIP-48): their secrets, who has shown one, and the requests about them.

In: the tokens of the state, and the key that all agents share. Out: the HMACs that clients log in with.
"""
