"""Machines to solve for, as a solver sees them."""

from __future__ import annotations

from typing import Any

LINUX = {"linux": "6.1", "unix": "0", "glibc": "2.39", "archspec": "1"}


def machine(driver: str | None = None, **other: str) -> list[Any]:
    """The virtual packages of a Linux machine whose NVIDIA driver supports CUDA `driver`."""
    from rattler import BuildString, GenericVirtualPackage, PackageName, Version

    cuda = {} if driver is None else {"cuda": driver}
    return [
        GenericVirtualPackage(PackageName(f"__{name}"), Version(version), BuildString("0"))
        for name, version in {**LINUX, **cuda, **other}.items()
    ]
