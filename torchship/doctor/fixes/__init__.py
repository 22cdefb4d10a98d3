"""A reason and an environment, to a command, and whether it mends the import.

In come a distribution and the runtime; out goes a `Fix` of the judge's.

Begin with `mending.py`, which has the fixes for a distribution as a whole; those for a file are in
the judge's folder of this name. `trying.py` does what a fix says in a folder beside the
environment, and imports the package once more.
"""
