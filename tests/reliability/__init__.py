"""Crashes: every operation, killed at every failpoint, repeated and carried on with, equals one that was never killed.

`operations` lists what is killed, `worker` runs one operation in a process that can be killed, `crashes` compares.
"""
