"""Builds a client's distributions with setuptools; the client's setup.py calls `run_setup`."""

# mypy: disable-error-code="import-untyped,misc"
# setuptools comes without types.

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path

import setuptools

from .builder.programs import OLDEST_SETUPTOOLS

if int(setuptools.__version__.partition(".")[0]) < OLDEST_SETUPTOOLS:
    # Before setuptools fails by what it lacks. It exits instead of raising, since a frontend prints
    # forty lines of traceback above an error.
    sys.exit(
        f"error: this build needs setuptools {OLDEST_SETUPTOOLS} or newer, but "
        f"{sys.executable} has {setuptools.__version__}; "
        f'run: {sys.executable} -m pip install --upgrade "setuptools>={OLDEST_SETUPTOOLS}"'
    )

from setuptools import Distribution, Extension, find_namespace_packages, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

from .builder import BuildError, Step, client, execute, fitting_request, plan
from .builder.options import BuildOptions, read_options
from .builder.programs import Log
from .builder.request import glue_for
from .builder.sources import (
    CUDA_SUFFIXES,
    HEADER_SUFFIXES,
    HOST_SUFFIXES,
    build_inputs,
    git_commit,
    source_epoch,
)
from .builder.torch_range import torch_requirement, with_torch
from .engine import MODULES, PARTS, copy_engine
from .judge import TorchNotFoundError, find_torch
from .judge.project import Project
from .readme import links_for_an_index

_TORCHSHIP = Path(__file__).resolve().parent
#: The copy of an earlier build: the engine comes from torchship itself.
_NOT_OURS = ("engine", "engine.*")
_SOURCE_SUFFIXES = (*HEADER_SUFFIXES, *HOST_SUFFIXES, *CUDA_SUFFIXES)


def run_setup(root: Path, *, is_binary: bool = True, is_editable: bool = False) -> None:
    """Calls setuptools for the client whose sources are in `root`.

    A distribution that `is_binary` requires the torch that its binaries serve; a source
    distribution requires what the matrix says, since any of these torches can build it. An
    editable one has the engine in the checkout, as a wheel has it inside.
    """
    record = read_project(root)
    options = read_build_options(record)

    class ClientDistribution(Distribution):
        project = record

        def parse_config_files(
            self, filenames: list[str] | None = None, ignore_option_errors: bool = False
        ) -> None:
            """Reads the metadata; an index shows the README, but has no file that it links to."""
            super().parse_config_files(filenames, ignore_option_errors)
            said: list[str] = getattr(self, "install_requires", None) or []
            requires = said or carried_requirements(record)
            torch = binary_requirement(record) if is_binary else None
            self.install_requires = requires if torch is None else with_torch(requires, torch)
            self.metadata.install_requires = self.install_requires
            repository = self.metadata.project_urls.get("Repository")
            if repository and self.metadata.long_description:
                self.metadata.long_description = links_for_an_index(
                    self.metadata.long_description, repository
                )

    package = record.package
    if is_editable:
        copy_engine(record.folder)
    engine = record.folder / "engine" if is_editable else _TORCHSHIP
    parts = [pattern for part in PARTS for pattern in (part, f"{part}.*")]
    engine_packages = find_namespace_packages(str(engine), include=parts, exclude=["*.__pycache__"])
    packages = [
        package,
        f"{package}.engine",
        f"{package}.csrc",
        *(f"{package}.{name}" for name in find_packages(str(record.folder), exclude=_NOT_OURS)),
        *(f"{package}.engine.{name}" for name in engine_packages),
        *(f"{package}.csrc.{name}" for name in find_namespace_packages(str(root / "csrc"))),
    ]
    setup(
        distclass=ClientDistribution,
        # A list of copied files would stand above the error of a build that fails.
        script_args=["--quiet", *sys.argv[1:]],
        packages=list(dict.fromkeys(packages)),
        # A module of the distribution's name leads those who import it to the package.
        py_modules=[record.wheel_name] if (root / f"{record.wheel_name}.py").is_file() else [],
        package_dir={
            package: os.path.relpath(record.folder, root),
            f"{package}.engine": os.path.relpath(engine, root),
            f"{package}.csrc": "csrc",
        },
        package_data={
            package: ["py.typed", *options.data],
            "": ["*.json", "*.cmake", *(f"*{suffix}" for suffix in _SOURCE_SUFFIXES)],
            # A folder whose name has a dot is no package, but its headers are headers.
            f"{package}.csrc": [f"**/*{suffix}" for suffix in _SOURCE_SUFFIXES],
        },
        # Without an extension, setuptools would make a pure wheel and not run BuildBinaries.
        ext_modules=[Extension(f"{package}.lib.binaries", sources=[])],
        cmdclass={
            "build_ext": BuildBinaries,
            "build_py": BuildPython,
            "bdist_wheel": PlatformWheel,
            "sdist": SourceDistribution,
        },
    )


def read_project(root: Path) -> Project:
    """The record of the client in `root`; raises SetupError if there is not one."""
    try:
        return client.read_project(root)
    except BuildError as error:
        raise SetupError(str(error)) from None


def read_build_options(project: Project) -> BuildOptions:
    """What `build:` of the project's matrix says; raises SetupError if it cannot be read."""
    try:
        return read_options(project)
    except BuildError as error:
        raise SetupError(str(error)) from None


def prebuilt_variable(project: Project) -> str:
    """The variable that names a folder of binaries to pack instead of compiling."""
    return project.variable("PREBUILT")


def default_torch(project: Project) -> str | None:
    """The release that the matrix tests with by default; None if the package does not say it."""
    release = _support(project).get("torch_default")
    return release if isinstance(release, str) else None


def carried_requirements(project: Project) -> list[str]:
    """What the matrix says that the package requires, for any torch of the matrix."""
    requires = _support(project).get("requires")
    return [str(word) for word in requires] if isinstance(requires, list) else []


def _support(project: Project) -> dict[str, object]:
    path = project.folder / "support.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SetupError(
            f"{path} is damaged ({error}); write it again: scripts/build_all.sh generate"
        ) from None
    return dict(content)


def binary_requirement(project: Project) -> str | None:
    """What a build here requires of torch; None if that is not known before it fails."""
    folder = os.environ.get(prebuilt_variable(project))
    try:
        names = [path.name for path in Path(folder).glob("glue-*.so")] if folder else []
        return torch_requirement(names or [glue_for(find_torch(), project)])
    except (TorchNotFoundError, BuildError, ValueError):
        return None


def carry_source(project: Project, package: Path) -> None:
    """Writes the commit of the sources and the commit's date into a distribution's package."""
    facts = {
        "commit": git_commit(project, os.environ),
        "epoch": source_epoch(project, os.environ),
    }
    path = package / "source.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts) + "\n", encoding="utf-8")


class SourceDistribution(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copies the sources, with the torchship that builds them where it lies among them."""
        root = Path.cwd()
        project: Project = self.distribution.project
        mapping = project.folder / "engine" / "__init__.py"
        vendored = [path for path in (*root.glob("vendor/*"), mapping) if path.is_file()]
        # A torchship that is installed elsewhere is no source of the project, nor is the copy that
        # an editable install made of it.
        engine = project.folder.relative_to(root) / "engine"
        foreign = (os.pardir, os.sep, f"{engine}/")
        own = (file for file in files if not file.startswith(foreign))
        named = build_inputs(project, root / "csrc")
        sources = {*own, *(str(path.relative_to(root)) for path in (*vendored, *named))}
        super().make_release_tree(base_dir, sorted(sources))
        carry_source(project, base_dir / project.folder.relative_to(root))


class BuildPython(build_py):
    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """The modules of a package; of torchship's, those that the engine has."""
        modules: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        if package != f"{self.distribution.project.package}.engine":
            return modules
        return [module for module in modules if module[1] in MODULES]


class BuildBinaries(build_ext):
    """Compiles the variant for the installed torch, or packs prebuilt binaries."""

    def run(self) -> None:
        project: Project = self.distribution.project
        in_place = self.inplace or self.editable_mode
        root = project.folder.parent if in_place else Path(self.build_lib)
        binaries = _prebuilt_binaries(project) or self._compile(project)
        lib_dir = root / project.package / "lib"
        # The folder must hold no binaries of an earlier build.
        shutil.rmtree(lib_dir, ignore_errors=True)
        lib_dir.mkdir(parents=True)
        for path in binaries:
            shutil.copy2(path, lib_dir / path.name)
        if self.inplace:
            copy_engine(project.folder)
        if not in_place:
            carry_source(project, root / project.package)

    def _compile(self, project: Project) -> list[Path]:
        work_dir = Path(self.build_temp).resolve() / "binaries"
        log = partial(self.announce, level=2)
        steps = plan_build(project, work_dir / "lib", log)
        try:
            execute(steps, work_dir, self.parallel or None, log)
        except BuildError as error:
            raise SetupError(f"{project.distribution} was not built: {error}") from None
        return [step.output for step in steps if step.output.suffix == ".so"]

    def get_outputs(self) -> list[str]:
        lib_dir = Path(self.build_lib) / self.distribution.project.package / "lib"
        return [str(path) for path in sorted(lib_dir.glob("*.so"))]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


def plan_build(project: Project, out_dir: Path, log: Log) -> list[Step]:
    """The steps that make the binaries for the torch that is installed here.

    Raises SetupError for what stops the build before anything is compiled.
    """
    try:
        return plan(fitting_request(project, find_torch(), out_dir, log=log))
    except TorchNotFoundError as error:
        raise SetupError(
            f"{project.distribution} is compiled against a torch, "
            f"but the build finds no torch ({error}); "
            f"install torch into this environment ({sys.prefix}) and run the same command "
            "again; or leave out --no-build-isolation, and pip fetches a torch to compile with "
            "(another one with --config-settings torch=2.13.0)"
        ) from None
    except BuildError as error:
        raise SetupError(f"{project.distribution} was not built: {error}") from None


def _prebuilt_binaries(project: Project) -> list[Path]:
    """The binaries in the folder that the variable names; none if it is not set."""
    variable = prebuilt_variable(project)
    folder = os.environ.get(variable)
    if not folder:
        return []
    binaries = sorted(Path(folder).glob("*.so"))
    if not binaries:
        raise SetupError(
            f"{variable}={folder} holds no glue-*.so or kernels-*.so; "
            "point it to the folder of binaries that the release tool made, "
            "or unset it to compile"
        )
    return binaries


class PlatformWheel(bdist_wheel):
    """No binary refers to a Python symbol, so one wheel serves every Python of the platform."""

    def get_tag(self) -> tuple[str, str, str]:
        _python, _abi, platform = super().get_tag()
        return "py3", "none", platform
