"""A run from its start to its Result.

To read in this order: solve (what the user calls), loop (limits, records and Status; methods that are driven from the
host), blocks (compiled blocks of steps), starts (several of them), result and history (Status, Result, the
trace), reasons (why a run did not succeed), checkpoint, plain and container (a run in a file), progress and interrupts
(the terminal).
"""
