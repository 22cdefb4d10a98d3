"""The one error of the builder."""

from __future__ import annotations


class BuildError(RuntimeError):
    """A build cannot be planned, or failed; the text names the cause and ends with what to do."""
