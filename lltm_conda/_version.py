"""The one home of the version: pyproject.toml, the build records and the recipe take it from here."""

__version__ = "0.1.0"
