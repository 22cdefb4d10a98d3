"""The command `python -m tiny_client`."""

import sys

from ._project import PROJECT
from .engine.runtime.command_line import main

if __name__ == "__main__":
    sys.exit(main(PROJECT))
