"""This agent's relation to its bucket: whose it is, what it may do there, and what goes wrong with it.

In: answers of the object store. Out: permission to start, metrics and log lines on outages, full disks and damage.
Reading and writing objects is `storage`.
"""
