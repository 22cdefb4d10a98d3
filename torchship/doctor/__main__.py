"""`python -m torchship.doctor`: torch-doctor in a checkout, with nothing installed."""

import sys

from .command import main

sys.exit(main())
