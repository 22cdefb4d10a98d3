"""Builds lltm ahead of time. The metadata is in pyproject.toml; lltm_conda/engine/builder says how
to compile, and is imported without torch."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

ROOT = Path(__file__).resolve().parent
os.environ["LLTM_CONDA_LOAD"] = "0"  # nothing is built yet that could be loaded
sys.path.insert(0, str(ROOT))

from lltm_conda.engine.builder import BuildError, execute, fitting_request, plan  # noqa: E402
from lltm_conda.engine.builder.sources import git_commit, source_epoch  # noqa: E402
from lltm_conda.engine.compat.torch_probe import TorchNotFoundError, find_torch  # noqa: E402

NO_TORCH = (
    "lltm is compiled against the torch of your environment, and the build sees none ({}). "
    "pip builds in an isolated environment unless told otherwise. Install torch, then run: "
    "pip install --no-build-isolation lltm   (from a checkout: pip install --no-build-isolation .)"
)


def carry_source(root: Path) -> None:
    """Writes into a distribution what its builds cannot ask git for."""
    facts = {"commit": git_commit(os.environ), "epoch": source_epoch(os.environ)}
    path = root / "lltm_conda" / "engine" / "builder" / "source.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts) + "\n", encoding="utf-8")


class SourceDistribution(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        carry_source(Path(base_dir))


class BuildBinaries(build_ext):
    """Compiles the variant that fits, or packs the binaries of LLTM_CONDA_PREBUILT."""

    def run(self) -> None:
        in_place = self.inplace or self.editable_mode
        package = ROOT if in_place else Path(self.build_lib)
        lib_dir = package / "lltm_conda" / "lib"
        prebuilt = os.environ.get("LLTM_CONDA_PREBUILT")
        if prebuilt:
            binaries = sorted(Path(prebuilt).glob("*.so"))
            if not binaries:
                raise SetupError(
                    f"LLTM_CONDA_PREBUILT={prebuilt} holds no glue-*.so or kernels-*.so; point it "
                    "to the folder of binaries that the release tool made, or unset it to compile"
                )
        else:
            binaries = self._compile()
        # Nothing stale may be packed: a wheel holds what this build made.
        shutil.rmtree(lib_dir, ignore_errors=True)
        lib_dir.mkdir(parents=True)
        for path in binaries:
            shutil.copy2(path, lib_dir / path.name)
        if not in_place:
            carry_source(package)

    def _compile(self) -> list[Path]:
        try:
            torch = find_torch()
        except TorchNotFoundError as error:
            raise SetupError(NO_TORCH.format(error)) from None
        work_dir = Path(self.build_temp).resolve() / "binaries"
        try:
            request = fitting_request(torch, work_dir / "lib", log=self.announce_line)
            steps = plan(request)
            execute(steps, work_dir, self.parallel or None, self.announce_line)
        except BuildError as error:
            raise SetupError(f"lltm was not built: {error}") from None
        return [step.output for step in steps if step.output.suffix == ".so"]

    def announce_line(self, line: str) -> None:
        self.announce(line, level=2)

    def get_outputs(self) -> list[str]:
        lib_dir = Path(self.build_lib) / "lltm_conda" / "lib"
        return [str(path) for path in sorted(lib_dir.glob("*.so"))]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class PlatformWheel(bdist_wheel):
    """No binary references a Python symbol, so one wheel serves every Python of the platform."""

    def get_tag(self) -> tuple[str, str, str]:
        _python, _abi, platform = super().get_tag()
        return "py3", "none", platform


setup(
    packages=[
        "lltm_conda",
        "lltm_conda.csrc",
        "lltm_conda.csrc.engine",
        "lltm_conda.csrc.engine.torch_aten",
        "lltm_conda.csrc.engine.torch_stable",
        "lltm_conda.csrc.kernels",
        "lltm_conda.csrc.kernels.cpu",
        "lltm_conda.csrc.kernels.cuda",
        "lltm_conda.csrc.ops",
        "lltm_conda.engine",
        "lltm_conda.engine.builder",
        "lltm_conda.engine.compat",
    ],
    package_dir={"lltm_conda.csrc": "csrc"},
    package_data={"lltm_conda": ["py.typed", "engine/compat/*.json"], "": ["*.h", "*.cpp", "*.cu"]},
    # Without an extension, setuptools would make a pure wheel; BuildBinaries does the work.
    ext_modules=[Extension("lltm_conda.lib.binaries", sources=[])],
    cmdclass={
        "build_ext": BuildBinaries,
        "bdist_wheel": PlatformWheel,
        "sdist": SourceDistribution,
    },
)
