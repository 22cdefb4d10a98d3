"""`python -m torch_doctor`."""

import sys

from .doctor.command import main

sys.exit(main())
