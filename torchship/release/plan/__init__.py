"""The plan: which steps a run takes for its cells, and why a step is absent.

In come the cells, and what this machine has (`Host`); out comes the `Plan`: the tasks in an order
in which they can run, and for each step that a cell does not get, the reason.

Begin with `planner.py`, whose list of steps is all that it knows of them: each step in `steps`
says itself when it is planned and what it needs. `host.py` finds compilers, torch and Python.
"""
