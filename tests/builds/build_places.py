"""Places to build in: copies of the sources, and environments that borrow torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import setuptools
import torch

REPO = Path(__file__).resolve().parents[2]
SMOKE = Path(__file__).with_name("smoke_program.py")
SHIPPED = (
    "CHANGELOG.md",
    "CMakeLists.txt",
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "csrc",
    "examples/cpp",
    "include",
    "lltm_conda",
    "project.env",
    "pyproject.toml",
    "setup.py",
    "torchship",
)
_STEERING = ("CC", "CXX", "CXXFLAGS", "LDFLAGS", "CUDA_HOME", "CUDA_PATH", "CUDACXX", "DEBUG")
_STEERING += ("FORCE_CUDA", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "TORCH_EXTENSIONS_DIR")


def copy_sources(target: Path) -> Path:
    """The sources as a release holds them: no git, nothing built."""
    built = shutil.ignore_patterns("lib", "__pycache__", "*.so")

    def unwanted(folder: str, names: list[str]) -> set[str]:
        is_engine = Path(folder).name == "engine"  # which a build fills
        return {*names} - {"__init__.py"} if is_engine else built(folder, names)

    for name in SHIPPED:
        source = REPO / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=unwanted)
        else:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    return target


def environment(**changes: str | None) -> dict[str, str]:
    """The environment without what steers a build, then `changes` (None: not set)."""
    names = [name for name in os.environ if name.startswith(("LLTM_", "PYTHON"))]
    clean = {k: v for k, v in os.environ.items() if k not in (*names, *_STEERING)}
    return {**clean, **{name: value for name, value in changes.items() if value is not None}}


def quick_nvcc(version: tuple[int, int]) -> dict[str, str]:
    """What makes nvcc of this version compile in less time, for kernels that nothing runs."""
    return {"NVCC_APPEND_FLAGS": "-Ofc=mid" if version >= (13, 0) else "-Xptxas=-O1"}


@dataclass(frozen=True)
class Ran:
    code: int
    output: str  # standard output and standard error

    def good(self) -> str:
        assert self.code == 0, f"exit code {self.code}:\n{self.output[-6000:]}"
        return self.output


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    timeout: float = 900,
) -> Ran:
    process = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment() if env is None else env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )
    return Ran(process.returncode, process.stdout)


class Place:
    """A virtual environment that sees the tools of this one, and on demand its torch."""

    def __init__(self, root: Path, with_torch: bool = True) -> None:
        venv.create(root / "venv", symlinks=True, with_pip=False)
        self.python = root / "venv" / "bin" / "python"
        self.site = next((root / "venv").glob("lib/python3*/site-packages"))
        borrowed = root / "borrowed"
        borrowed.mkdir()
        for folder in {Path(torch.__file__).parents[1], Path(setuptools.__file__).parents[1]}:
            for path in folder.iterdir():
                # An lltm of the environment that runs the tests must not be found.
                hidden = path.name.startswith(("lltm", "__editable__", "pip"))
                if not with_torch:
                    hidden |= path.name.startswith(("torch", "functorch"))
                if not hidden and path.suffix != ".pth" and not (borrowed / path.name).exists():
                    (borrowed / path.name).symlink_to(path)
        (self.site / "borrowed.pth").write_text(f"{borrowed}\n")

    def pip(self, *arguments: str | Path, cwd: Path | None = None, **changes: str) -> Ran:
        """pip of the environment that runs the tests, working on this one."""
        return run(
            sys.executable,
            *("-m", "pip", "--python", self.python, *arguments),
            cwd=cwd,
            env=environment(**changes),
        )

    def smoke(self, **changes: str) -> str:
        """Runs the op here, forward and backward, against the definition; says what was loaded."""
        return run(self.python, SMOKE, cwd=self.site, env=environment(**changes)).good()
