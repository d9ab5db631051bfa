"""A run from its start to its Result.

To read in this order: solve (what the user calls), loop (limits, records and Status; methods that are driven from the
host), blocks (compiled blocks of steps), starts (several of them), result (Status, Trace, Result), progress and
interrupts (the terminal).
"""
