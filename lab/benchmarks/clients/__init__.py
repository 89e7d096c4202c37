"""The processes that do a contender's work, one module for each kind of contender.

They are started by `python -m lab.benchmarks.clients` and take orders on standard input.
"""
