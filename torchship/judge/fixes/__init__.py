"""What is wrong and whose it is, to what mends it.

In come a record, a runtime and what a rule has found; out goes a `Cure`: words for people, and
the command in them, if a test has carried one out.

Begin with `cures.py`, the record and its kinds. `fixes.py` has a function for each thing that can
be done: install, build, put back or remove something, by pip or by conda. `system_packages.py`
knows which packages of Debian and Ubuntu have a library or a part of Python.
"""
