"""Records and runtimes of this repository's own package, which tests of torchship know nothing of.

They are those of `made_facts.py` and `shared_objects.py`, with the package's name and version.
"""

from __future__ import annotations

from typing import Any

import made_facts
import shared_objects

from lltm_conda._project import PROJECT
from lltm_conda.engine.builder.sources import kernel_abi
from torchship.doctor import BinaryRecord, Runtime, TorchInstall

_OWN = {
    "package": PROJECT.distribution,
    "version": PROJECT.version,
    "kernel_abi": kernel_abi(),
}
GLUE_RECORD: dict[str, Any] = {**shared_objects.GLUE_RECORD, **_OWN}
KERNELS_RECORD: dict[str, Any] = {**shared_objects.KERNELS_RECORD, **_OWN}


def make_runtime(torch: TorchInstall | None = None, **facts: object) -> Runtime:
    own = {"project": PROJECT, "package_version": PROJECT.version}
    return made_facts.make_runtime(torch, **{**own, **facts})


def make_glue(**facts: object) -> BinaryRecord:
    return _as_own(made_facts.make_glue(**facts))


def make_cuda(**facts: object) -> BinaryRecord:
    return _as_own(made_facts.make_cuda(**facts))  # type: ignore[arg-type]


def _as_own(binary: BinaryRecord) -> BinaryRecord:
    assert binary.record is not None
    return binary._replace(record=binary.record._replace(**_OWN))
