"""The commands of the release tool, run here or in an environment of the tool's own."""

from collections.abc import Sequence

from ..release.options import command_of, read
from ..release.root import find_root
from ..release.start import missing_requirements, start


def main(command: str, arguments: Sequence[str]) -> int:
    """Carries the command out, here if this Python has all that the release tool needs.

    Otherwise makes the tool's environment in the project, and replaces this process by the same
    command in that environment. Raises ReleaseError.
    """
    own = list(arguments)
    if command == "release":  # it has the grammar of scripts/build_all.sh
        command, own = command_of(own)
    asked = read(command, own, f"torchship {command}")
    if missing_requirements():
        start("torchship", [command, *own], find_root(asked.project))
    from ..release.__main__ import carry_out

    return carry_out(asked)
