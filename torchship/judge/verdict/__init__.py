"""A file and the runtime, to a verdict, a choice, or one cause.

In come a path or a `BinaryRecord`, and a `Runtime`; out goes a `Verdict`: a finding of each rule
that applies.

Begin with `judgement.py`: `judge_file` gathers the facts of a file (`gathering.py`), and `judge`
asks the rules of the folder `rules` about them, once. `selection.py` chooses the best of several
files, as a loader does; `explain.py` finds the one cause to show where nothing can be chosen.
"""
