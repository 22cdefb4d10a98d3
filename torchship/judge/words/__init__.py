"""What is said: codes, classes of faults, messages and reports.

In come findings, verdicts, or a message of the dynamic linker or of Python; out goes text, JSON or
a code.

Begin with `codes.py`: each kind of finding has a stable code, and some have a class of `faults.py`,
listed on the page of all codes. `messages.py` tells which code a message has.
`render.py` prints reports, in which it shortens private folders.
"""
