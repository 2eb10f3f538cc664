"""Proves an engine on this machine, step by step, and reports which steps held.

A step is a function of its `Bench` that returns figures, or raises `Failed` or `Skipped`. Steps of
the engine use it through its seam; steps of the server use HTTP, as a client would. `run.py` runs
them in the order of `steps.py`. No server imports this folder.
"""
