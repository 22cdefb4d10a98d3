"""Tools: pure Python distributions, made and run in every form in which users get them.

Begin with `tools.py`, which says which tools a run makes and what they must be; `packing.py` has
the steps.
"""
