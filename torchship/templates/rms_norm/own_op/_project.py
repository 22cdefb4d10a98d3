# Generated from build_matrix.yaml by `scripts/build_all.sh generate`; do not edit.
"""The record of the project, for the engine."""

from pathlib import Path

from ._version import __version__
from .engine.judge.project import Project

PROJECT = Project(
    distribution="own-op",
    package="own_op",
    namespace="own_op",
    prefix="OWN_OP",
    operator="rms_norm",
    version=__version__,
    folder=Path(__file__).parent,
    kernels=("cpu", "cuda"),
    definition="own_op.reference.reference",
)
