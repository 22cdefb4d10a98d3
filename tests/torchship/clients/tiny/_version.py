"""The version of the package and of its binaries."""

__version__ = "0.1.0"
