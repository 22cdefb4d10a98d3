"""Benchmarks of the LLTM cell and layer: every contender in one process, interleaved and checked.

``python -m benchmarks --help`` lists the commands; ``benchmarks/results/README.md`` says how a
measurement is made and what the JSON files hold.
"""
