"""The other channels that pytorch comes from, without content; build strings of their feedstocks.

defaults      gpu_cuda124_py311h0_300, cpu_mkl_py311h0_100
pytorch       py3.11_cuda12.4_cudnn9.1.0_0, py3.11_cpu_0: C++ ABI 0, abandoned after 2.5
"""

from __future__ import annotations

from collections.abc import Iterator

from torchship.release.matrix.schema import Matrix
from torchship.release.steps.conda.stubs import Stub, pytorch, tools

# The pytorchs of Anaconda's `defaults`, with their CUDA versions.
DEFAULTS = {
    "2.5.1": ("12.4",),
    "2.6.0": ("12.4",),
    "2.7.0": ("12.4",),
    "2.8.0": ("12.8",),
    "2.9.1": ("12.8",),
    "2.10.0": ("12.8", "13.0"),
}
# The last pytorchs of the channel `pytorch`.
OLD_CHANNEL = {"2.4.1": ("11.8", "12.1", "12.4"), "2.5.1": ("11.8", "12.1", "12.4")}


def defaults(matrix: Matrix) -> Iterator[Stub]:
    """Anaconda's `defaults`."""
    yield from tools(matrix)
    for release, versions in DEFAULTS.items():
        for cuda in (None, *versions):
            flavour = f"gpu_cuda{cuda.replace('.', '')}" if cuda else "cpu_mkl"
            yield from pytorch(release, ("3.10", "3.11", "3.12"), cuda, f"{flavour}_py{{}}h0")


def old_channel(matrix: Matrix) -> Iterator[Stub]:
    """The channel `pytorch`: another build string, another C++ ABI, mutexes, no `__cuda`."""
    yield Stub("pytorch-mutex", "1.0", "cpu", depends=())
    yield Stub("pytorch-mutex", "1.0", "cuda", 100)
    yield Stub("cpuonly", "2.0", "0", depends=("pytorch-mutex 1.0 cpu",))
    for version in sorted({v for versions in OLD_CHANNEL.values() for v in versions}):
        yield Stub("pytorch-cuda", version, "h0_6", depends=("pytorch-mutex 1.0 cuda",))
    for release, versions in OLD_CHANNEL.items():
        for python in ("3.10", "3.11", "3.12"):
            needs = (f"python >={python},<3.{int(python[2:]) + 1}.0a0",)
            cpu = (*needs, "pytorch-mutex 1.0 cpu")
            yield Stub("pytorch", release, f"py{python}_cpu_0", depends=cpu)
            for cuda in versions:
                after = f"{cuda[:-1]}{int(cuda[-1]) + 1}"
                gpu = (*needs, f"pytorch-cuda >={cuda},<{after}", "pytorch-mutex 1.0 cuda")
                yield Stub("pytorch", release, f"py{python}_cuda{cuda}_cudnn9.1.0_0", 0, gpu)
