"""Fixes for a distribution as a whole, and whether one mends the import.

In come a distribution and the runtime; out goes a `Fix` of the judge's, whose own folder of this
name has the fixes for a file.

Begin with `mending.py`, which has them. `trying.py` does what a fix says in a folder beside the
environment, and imports the package once more; `searching.py` so tries other releases.
"""
