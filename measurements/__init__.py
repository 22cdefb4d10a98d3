"""Programs and data that make a number of the docs; ``measurements/README.md`` describes them."""
