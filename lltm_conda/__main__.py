"""What `python -m PACKAGE` does: what is installed here, what fits, and does it compute?"""

import sys

from ._project import PROJECT
from .engine.command_line import main

if __name__ == "__main__":
    sys.exit(main(PROJECT))
