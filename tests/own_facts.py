"""Records of this repository's own package, which tests of torchship know nothing of.

They are those of `shared_objects.py`, with the package's name and version.
"""

from __future__ import annotations

from typing import Any

import shared_objects

from lltm_conda._project import PROJECT
from lltm_conda.engine.builder.sources import kernel_abi

_OWN = {
    "package": PROJECT.distribution,
    "version": PROJECT.version,
    "kernel_abi": kernel_abi(),
}
GLUE_RECORD: dict[str, Any] = {**shared_objects.GLUE_RECORD, **_OWN}
KERNELS_RECORD: dict[str, Any] = {**shared_objects.KERNELS_RECORD, **_OWN}
