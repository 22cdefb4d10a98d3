"""Packs: out of objects and sources come the source distribution, thin wheels and the fat wheel.

Begin with `distributions.py`, which has the steps; `wheels.py` reads, joins and writes wheels so
that equal content gives equal bytes.
"""
