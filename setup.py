"""Builds the package with the engine's builder. The metadata is in pyproject.toml."""

import importlib
import json
import os
import re
import shutil
import sys
from functools import partial
from pathlib import Path

from setuptools import Extension, find_namespace_packages, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

ROOT = Path(__file__).resolve().parent
VARIABLES = (ROOT / "project.env").read_text(encoding="utf-8")
NAMES = dict(re.findall(r'^PROJECT_(\w+)="(.*)"$', VARIABLES, re.MULTILINE))
NAME = NAMES["DISTRIBUTION"]
PACKAGE = NAMES["PACKAGE"]
PREBUILT = f"{NAMES['PREFIX']}_PREBUILT"
os.environ[f"{NAMES['PREFIX']}_LOAD"] = "0"  # the imports below must load no binary
sys.path.insert(0, str(ROOT))
builder = importlib.import_module("torchship.builder")
doctor = importlib.import_module("torchship.doctor")
PROJECT = importlib.import_module(f"{PACKAGE}._project").PROJECT

NO_TORCH = (
    f"{NAME} is compiled against the torch of your environment, but the build finds no torch "
    "({}). By default, pip builds in an isolated environment, without your torch. Install torch, "
    "then run the same command with --no-build-isolation; in a checkout: "
    "pip install --no-build-isolation ."
)


def carry_source(root: Path) -> None:
    """Writes the commit of the sources and the commit's date into a distribution."""
    facts = {
        "commit": builder.sources.git_commit(PROJECT, os.environ),
        "epoch": builder.sources.source_epoch(PROJECT, os.environ),
    }
    path = root / PACKAGE / "source.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts) + "\n", encoding="utf-8")


class SourceDistribution(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        carry_source(Path(base_dir))


class BuildBinaries(build_ext):
    """Compiles the variant for the installed torch, or packs the binaries in PREBUILT's folder."""

    def run(self) -> None:
        in_place = self.inplace or self.editable_mode
        package = ROOT if in_place else Path(self.build_lib)
        lib_dir = package / PACKAGE / "lib"
        prebuilt = os.environ.get(PREBUILT)
        if prebuilt:
            binaries = sorted(Path(prebuilt).glob("*.so"))
            if not binaries:
                raise SetupError(
                    f"{PREBUILT}={prebuilt} holds no glue-*.so or kernels-*.so; point it "
                    "to the folder of binaries that the release tool made, or unset it to compile"
                )
        else:
            binaries = self._compile()
        # The folder must hold no binaries of an earlier build.
        shutil.rmtree(lib_dir, ignore_errors=True)
        lib_dir.mkdir(parents=True)
        for path in binaries:
            shutil.copy2(path, lib_dir / path.name)
        if not in_place:
            carry_source(package)

    def _compile(self) -> list[Path]:
        work_dir = Path(self.build_temp).resolve() / "binaries"
        log = partial(self.announce, level=2)
        try:
            torch = doctor.find_torch()
            request = builder.fitting_request(PROJECT, torch, work_dir / "lib", log=log)
            steps = builder.plan(request)
            builder.execute(steps, work_dir, self.parallel or None, log)
        except doctor.TorchNotFoundError as error:
            raise SetupError(NO_TORCH.format(error)) from None
        except builder.BuildError as error:
            raise SetupError(f"{NAME} was not built: {error}") from None
        return [step.output for step in steps if step.output.suffix == ".so"]

    def get_outputs(self) -> list[str]:
        lib_dir = Path(self.build_lib) / PACKAGE / "lib"
        return [str(path) for path in sorted(lib_dir.glob("*.so"))]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class PlatformWheel(bdist_wheel):
    """No binary refers to a Python symbol, so one wheel serves every Python of the platform."""

    def get_tag(self) -> tuple[str, str, str]:
        _python, _abi, platform = super().get_tag()
        return "py3", "none", platform


setup(
    packages=[
        PACKAGE,
        *(f"{PACKAGE}.{name}" for name in find_packages(PACKAGE)),
        *(f"{PACKAGE}.engine.{name}" for name in find_packages("torchship", exclude=["release"])),
        f"{PACKAGE}.csrc",
        *(f"{PACKAGE}.csrc.{name}" for name in find_namespace_packages("csrc")),
    ],
    package_dir={f"{PACKAGE}.engine": "torchship", f"{PACKAGE}.csrc": "csrc"},
    package_data={PACKAGE: ["py.typed"], "": ["*.h", "*.cpp", "*.cu", "*.json", "*.cmake"]},
    # Without an extension, setuptools would make a pure wheel and not run BuildBinaries.
    ext_modules=[Extension(f"{PACKAGE}.lib.binaries", sources=[])],
    cmdclass={
        "build_ext": BuildBinaries,
        "bdist_wheel": PlatformWheel,
        "sdist": SourceDistribution,
    },
)
