"""Makes small wheels and source distributions of lltm's shape."""

from __future__ import annotations

from functools import partial

import small_wheels
from small_wheels import Shape

LLTM = Shape(distribution="lltm", package="lltm_conda")
make_wheel = partial(small_wheels.make_wheel, shape=LLTM)
make_sdist = partial(small_wheels.make_sdist, shape=LLTM)
