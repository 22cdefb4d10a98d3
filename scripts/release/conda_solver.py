"""What a conda solver would install on some machine; nothing is downloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from release import ReleaseError

# A machine without a GPU; `machine` adds the driver.
LINUX = {"__linux": "6.1", "__unix": "0", "__glibc": "2.39", "__archspec": "1"}


def machine(driver: str | None = None, **other: str) -> dict[str, str]:
    """The virtual packages of a Linux machine whose NVIDIA driver speaks CUDA `driver`."""
    cuda = {} if driver is None else {"__cuda": driver}
    return {**LINUX, **cuda, **{f"__{name}": version for name, version in other.items()}}


def solve(
    channels: Sequence[str], specs: Sequence[str], virtual: Mapping[str, str], cache: Path
) -> dict[str, str]:
    """Name and file name of every package that the solver takes.

    Args:
        channels: URLs, most important first.
        specs: what is asked for, `lltm`, `python 3.12.*`.
        virtual: names and versions of virtual packages, see `machine`.
        cache: a folder for the channels' index.

    Raises:
        ReleaseError: there is no solution; the text names what stands in the way.
    """
    import rattler
    from rattler.exceptions import SolverError

    facts = [
        rattler.GenericVirtualPackage(
            rattler.PackageName(name), rattler.Version(version), rattler.BuildString("0")
        )
        for name, version in virtual.items()
    ]

    async def go() -> dict[str, str]:
        records = await rattler.solve(
            sources=[rattler.Channel(channel) for channel in channels],
            specs=list(specs),
            gateway=rattler.Gateway(cache_dir=cache),
            platforms=["linux-64", "noarch"],
            virtual_packages=facts,
        )
        return {record.name.normalized: record.file_name for record in records}

    try:
        return asyncio.run(go())
    except SolverError as error:
        wanted, have = ", ".join(specs), ", ".join(f"{k} {v}" for k, v in virtual.items())
        text = f"no packages serve {wanted} on a machine with {have}:\n{error}"
        raise ReleaseError(f"{text}\nask for less, or for what the channel holds") from error
