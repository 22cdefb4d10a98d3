"""CUDA by clang: for a CUDA major whose headers, ptxas and libdevice are there, but not its nvcc.

clang knows fewer architectures than ptxas. For the later ones, ptxas assembles the PTX of the
newest architecture that clang knows: `bin/fatbinary` of the toolkit's folder takes
``--assemble=sm_NN`` for that, and ``--drop=`` to leave out intermediate images.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..compat.records import dotted
from .cuda_toolkit import REPAIR
from .programs import BuildError, output_of


@dataclass(frozen=True)
class ClangToolkit:
    """A clang++, and the folder with the rest of CUDA: include, lib64, bin/ptxas, bin/fatbinary,
    nvvm/libdevice."""

    clang: str
    folder: Path
    version: tuple[int, int]

    @property
    def version_text(self) -> str:
        return dotted(self.version)

    @property
    def place(self) -> str:
        """The toolkit's folder, for messages."""
        return str(self.folder)

    @cached_property
    def name(self) -> str:
        """For records: `clang++ 19.1.7`."""
        found = re.search(r"version (\d+(?:\.\d+)+)", output_of([self.clang, "--version"], REPAIR))
        return f"clang++ {found[1] if found else 'unknown'}"

    @cached_property
    def native(self) -> frozenset[str]:
        """The architectures that clang itself makes PTX for and this ptxas knows, as `75`."""
        command = [self.clang, "--target=nvptx64-nvidia-cuda", "--print-supported-cpus"]
        return _numbers(command) & self._assembled

    @cached_property
    def _assembled(self) -> frozenset[str]:
        return _numbers([str(self.folder / "bin" / "ptxas"), "--help"])

    @property
    def _newest(self) -> str:
        if not self.native:
            raise BuildError(
                f"{self.clang} compiles for no architecture of CUDA {self.version_text}; set "
                "CUDA_HOME to a CUDA toolkit with nvcc, or install a newer clang"
            )
        return max(self.native, key=int)

    def architectures(self) -> frozenset[str]:
        """The architectures that clang compiles for, and the later ones that ptxas assembles."""
        newest = int(self._newest)
        return self.native | {number for number in self._assembled if int(number) > newest}

    def actual(self, architectures: Iterable[str]) -> list[str]:
        """The architectures that are made for these: PTX is at most the newest that clang knows."""
        made = []
        for name in architectures:
            kind, _, number = name.partition("_")
            late = kind == "compute" and number not in self.native
            made.append(f"compute_{self._newest}" if late else name)
        return list(dict.fromkeys(made))

    def flags(self, architectures: Sequence[str]) -> list[str]:
        """The options that make clang compile CUDA for `sm_XY` and keep the PTX `compute_XY`."""
        code = [name.split("_")[1] for name in architectures if name.startswith("sm_")]
        ptx = [name.split("_")[1] for name in self.actual(architectures) if "compute" in name]
        later = [number for number in code if number not in self.native]
        assembled_from = [self._newest] if later else []
        kept = {*ptx, *assembled_from}
        compiled = {*code, *kept} & self.native
        fatbinary = [f"--assemble=sm_{number}" for number in later]
        fatbinary += [f"--drop=sm_{number}" for number in sorted(compiled - {*code})]
        fatbinary += [f"--drop=compute_{number}" for number in sorted(kept - {*ptx})]
        return [
            *("-x", "cuda", f"--cuda-path={self.folder}", "-Wno-unknown-cuda-version"),
            *(f"--cuda-gpu-arch=sm_{number}" for number in sorted(compiled, key=int)),
            "--no-cuda-include-ptx=all",
            *(f"--cuda-include-ptx=sm_{number}" for number in sorted(kept, key=int)),
            *(word for option in fatbinary for word in ("-Xcuda-fatbinary", option)),
        ]


def _numbers(command: list[str]) -> frozenset[str]:
    """The `NN` of every `sm_NN` that a program prints."""
    return frozenset(re.findall(r"\bsm_(\d+)\b", output_of(command, REPAIR)))
