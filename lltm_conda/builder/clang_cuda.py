"""CUDA by clang: for a CUDA major of which there are headers, ptxas and libdevice, but no nvcc.

The folder that clang is pointed to (`--cuda-path`) holds, beside those, a `bin/fatbinary` that
understands ``--assemble=sm_NN``: clang knows fewer architectures than ptxas, so the PTX of the
newest one that it knows is assembled for the later ones too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .cuda_toolkit import said_by
from .errors import BuildError

__all__ = ["ClangToolkit"]


@dataclass(frozen=True)
class ClangToolkit:
    """A clang and the folder with the rest of CUDA.

    Attributes:
        clang: the command of clang++.
        folder: for `--cuda-path`: include, lib64, bin/ptxas, bin/fatbinary, nvvm/libdevice.
        version: the CUDA release of that folder, as (major, minor).
    """

    clang: str
    folder: Path
    version: tuple[int, int]

    @property
    def version_text(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"

    @cached_property
    def name(self) -> str:
        """For records: `clang++ 19.1.7`."""
        found = re.search(r"version (\d+(?:\.\d+)+)", said_by([self.clang, "--version"]))
        return f"clang++ {found[1] if found else 'unknown'}"

    @cached_property
    def native(self) -> frozenset[str]:
        """The architectures that clang itself makes PTX for and this ptxas knows, as `75`."""
        command = [self.clang, "--target=nvptx64-nvidia-cuda", "--print-supported-cpus"]
        known = frozenset(re.findall(r"\bsm_(\d+)\b", said_by(command)))
        return known & self._assembled

    @cached_property
    def _assembled(self) -> frozenset[str]:
        text = said_by([str(self.folder / "bin" / "ptxas"), "--help"])
        return frozenset(re.findall(r"\bsm_(\d+)\b", text))

    def architectures(self) -> frozenset[str]:
        """What can be compiled for: clang's own, and what ptxas assembles beyond them."""
        newest = self._newest()
        later = {number for number in self._assembled if int(number) > int(newest)}
        return self.native | later

    def actual(self, architectures: Iterable[str]) -> list[str]:
        """What comes out when those are asked for: PTX is of the newest that clang knows."""
        newest = f"compute_{self._newest()}"
        made = [
            newest
            if name.startswith("compute_") and name.split("_")[1] not in self.native
            else name
            for name in architectures
        ]
        return list(dict.fromkeys(made))

    def flags(self, architectures: Sequence[str]) -> list[str]:
        """The options that make clang compile CUDA for `sm_XY` and keep the PTX `compute_XY`."""
        newest = self._newest()
        flags = ["-x", "cuda", f"--cuda-path={self.folder}", "-Wno-unknown-cuda-version"]
        code = [name.split("_")[1] for name in architectures if name.startswith("sm_")]
        ptx = [name.split("_")[1] for name in self.actual(architectures) if "compute" in name]
        later = [number for number in code if number not in self.native]
        needed = {*code, *ptx, *([newest] if later else [])} & self.native
        flags += [f"--cuda-gpu-arch=sm_{number}" for number in sorted(needed, key=int)]
        flags += ["--no-cuda-include-ptx=all"]
        kept = {*ptx, *([newest] if later else [])}
        flags += [f"--cuda-include-ptx=sm_{number}" for number in sorted(kept, key=int)]
        options = [f"--assemble=sm_{number}" for number in later]
        options += [f"--drop=sm_{number}" for number in sorted(needed - {*code})]
        options += [f"--drop=compute_{number}" for number in sorted(kept - {*ptx})]
        for option in options:
            flags += ["-Xcuda-fatbinary", option]
        return flags

    def _newest(self) -> str:
        if not self.native:
            raise BuildError(
                f"{self.clang} compiles for no architecture of CUDA {self.version_text}; set "
                "CUDA_HOME to a CUDA toolkit with nvcc, or install a newer clang"
            )
        return max(self.native, key=int)
