"""Benchmarks of the LLTM cell and layer; ``measurements/README.md`` describes them."""
