"""`torchship doctor`: checks the torch extensions of this environment."""

import argparse

from ..doctor import command
from ..judge.project import NOBODY

add_arguments = command.add_arguments


def run(options: argparse.Namespace) -> int:
    return command.run(options, NOBODY)
