"""What a machine has that a plan needs; `host.py` looks for it."""

from dataclasses import dataclass, field

from ... import builder
from ...judge.records import TorchInstall


@dataclass(frozen=True)
class Compilers:
    """The installed nvccs, the installed clang++s (major, path), and the clang packages of apt."""

    nvccs: tuple[builder.CudaToolkit, ...] = ()
    clangs: tuple[tuple[int, str], ...] = ()
    debian: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Host:
    """The facts about this machine that a run needs.

    New environments are made from `python`: the base interpreter of the calling
    environment, or the emulated one of another platform. `emulator` is qemu's name and
    version in a run for another platform, in which `driver` (is there an NVIDIA driver?) is
    False.
    """

    python: str
    python_minor: str
    torch: TorchInstall | None
    compiler: builder.HostCompiler | None
    cuda: Compilers = field(default_factory=Compilers)
    driver: bool = False
    emulator: str | None = None
