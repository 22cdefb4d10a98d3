"""The command `python -m PACKAGE`, which reports whether the op works here."""

import sys

from ._project import PROJECT
from .engine.command_line import main

if __name__ == "__main__":
    sys.exit(main(PROJECT))
