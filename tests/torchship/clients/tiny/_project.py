"""The record of the project, for the engine."""

from pathlib import Path

from ._version import __version__
from .engine.judge.project import Project

PROJECT = Project(
    distribution="tiny-client",
    package="tiny_client",
    namespace="tiny",
    prefix="TINY",
    operator="scale",
    version=__version__,
    folder=Path(__file__).parent,
    kernels=("cpu",),
    definition="tiny_client.reference.reference",
)
