"""The command `python -m PACKAGE`, which `engine.runtime.command_line` describes."""

import sys

from ._project import PROJECT
from .engine.runtime.command_line import main

if __name__ == "__main__":
    sys.exit(main(PROJECT))
