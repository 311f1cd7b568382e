"""The loss of power: a file layer that forgets everything not yet synced, and tests on top of it."""
