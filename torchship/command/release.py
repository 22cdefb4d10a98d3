"""The commands of the release tool, run here or in an environment of the tool's own."""

import argparse

from ..release.options import read_project
from ..release.root import find_root
from ..release.start import missing_requirements, start


def run(options: argparse.Namespace) -> int:
    """Carries the command out, here if this Python has all that the release tool needs.

    Otherwise makes the tool's environment in the project, and replaces this process by the same
    command in that environment. Raises ReleaseError.
    """
    if missing_requirements():
        start("torchship", options.arguments, find_root(read_project(options)))
    from ..release.__main__ import carry_out

    return carry_out(options)
