"""The plan: which steps a run takes for its cells, and why a step is absent.

In come the cells, and what this machine has (`Host`); out comes the `Plan`: the tasks in an order
in which they can run, and for each step that a cell does not get, the reason.

Begin with `plan.py`, which says what a plan is, and with `planner.py`, whose list of steps is all
that it knows of them: each step in `steps` says itself when it is planned and what it needs.
`host.py` chooses the cells, and finds the compilers, torch and Python that are the `Host` of
`machine.py`.

Where something is not done, one of five words says so:

not selected  no selector names the cell, so the run does not know it
skipped       a cell that this machine cannot build (`host.obstacle`), or a task that cannot be done
              here or now (`SkipTask`), or that comes after one that was not done
absent        a step that a cell does not get; only `--dry-run` shows the reasons
failed        a task that raised an error, and each cell and tool that it serves
missing       a cell that the fat wheel lacks, for whichever of these reasons
"""
