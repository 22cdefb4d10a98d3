"""Benchmarks of the LLTM cell and layer; ``benchmarks/results/README.md`` describes them."""
