"""What follows from a platform's name alone: the one table of platforms.

`build_matrix.yaml` says which of them a project is built for. One that the table lacks gets what
most have, so that a row of the matrix is all that a further platform takes.
"""

from typing import NamedTuple

FIRST = "linux-x86_64"  # the names of cells leave out this platform


class PlatformFacts(NamedTuple):
    """Facts about a platform.

    Attributes:
        machine: its processor, as `uname -m` prints it.
        conda: conda's name of the platform.
        loader: the name of its dynamic linker, as a pattern.
        page_size: the largest page of its Linux kernels in bytes; segments are aligned to it.
        first_abi1: the first torch minor whose wheel on PyPI has the C++11 ABI 1.
        image: the manylinux image of cibuildwheel; "" for one with the toolkits of the matrix.
    """

    machine: str
    conda: str
    loader: str
    page_size: int
    first_abi1: str
    image: str


PLATFORMS = {
    FIRST: PlatformFacts("x86_64", "linux-64", r"ld-linux-x86-64\.so\.2", 4096, "2.7", ""),
    "linux-aarch64": PlatformFacts(
        "aarch64", "linux-aarch64", r"ld-linux-aarch64\.so\.1", 65536, "2.6", "manylinux_2_28"
    ),
}


def facts_of(platform: str) -> PlatformFacts:
    """The row of a platform; of one that the table lacks, what most have."""
    if platform in PLATFORMS:
        return PLATFORMS[platform]
    machine = platform.removeprefix("linux-")
    return PlatformFacts(machine, platform, r"ld[\w-]*\.so\.\d", 65536, "2.7", "manylinux_2_28")
