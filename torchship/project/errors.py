"""What the commands on projects raise."""

from typing import Final

#: The exit code of a command that refuses what it got, as argparse has it.
REFUSED: Final = 2


class ProjectError(Exception):
    """A project that cannot be made, updated or tested; the message says what to do."""
