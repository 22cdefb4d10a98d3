"""Verifies: wheels that are installed beside torch, and run.

Begin with `runs.py`, which has the steps of each cell. `full.py` is the command `verify`: the fat
wheel beside every torch and Python.
"""
