"""A run from its start to its Result.

To read in this order: solve (what the user calls), loop (compiled blocks of steps), host_loop (methods that are driven
from the host), several (many starts), result (Status, Trace, Result), progress and interrupts (the terminal).
"""
