"""The client of torchship whose name the suite's tests use; `clients/tiny` has its C++."""

from __future__ import annotations

from pathlib import Path

from torchship.judge.project import Project

PROJECT = Project(
    distribution="tiny-client",
    package="tiny_client",
    namespace="tiny",
    prefix="TINY",
    operator="scale",
    version="0.1.0",
    folder=Path("/nowhere/tiny_client"),
    kernels=("cpu", "cuda"),
    definition="tiny_client.reference.scale",
)
