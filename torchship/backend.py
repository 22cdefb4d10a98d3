"""The build backend of a client, which pyproject.toml names: PEP 517 and PEP 660 over setuptools.

    [build-system]
    requires = ["torchship", "ninja"]
    build-backend = "torchship.backend"

A client needs no setup.py, and a `backend-path` may lead to a torchship in its own sources.

One rule says for which torch a wheel is compiled, whatever the frontend: for that of
``--config-settings torch=2.13.0``; else for the one that the build can import; else, in isolation,
for the one that is installed where the frontend runs, if that can be seen; else for the matrix's
default. The wheel requires the torch that its binaries serve, and its version is the sources'.
"""

# mypy: disable-error-code="import-untyped,misc"
# setuptools comes without types.

import os
import re
import sysconfig
from collections.abc import Callable, Mapping
from functools import wraps
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ParamSpec, TypeVar

from setuptools.build_meta import _BuildMetaBackend
from setuptools.errors import SetupError

from .judge import TorchNotFoundError, find_torch
from .setuptools_build import (
    default_torch,
    plan_build,
    prebuilt_variable,
    read_project,
    run_setup,
)

Given = ParamSpec("Given")
Result = TypeVar("Result")

#: What a frontend hands on: a string for each option, or a list if the option was given again.
ConfigSettings = Mapping[str, str | list[str] | None] | None

_SETTING = "torch"


class _Setuptools(_BuildMetaBackend):
    """The hooks of setuptools, with the client's distributions instead of a setup.py."""

    def __init__(self, *, is_binary: bool = True, is_editable: bool = False) -> None:
        super().__init__()
        #: Whether the distribution holds binaries, and so is for some torch alone.
        self.is_binary = is_binary
        self.is_editable = is_editable

    def run_setup(self, setup_script: str = "setup.py") -> None:
        run_setup(Path.cwd(), is_binary=self.is_binary, is_editable=self.is_editable)


_SETUPTOOLS = _Setuptools()
_EDITABLE = _Setuptools(is_editable=True)
_SOURCES = _Setuptools(is_binary=False)


def _in_one_line(hook: Callable[Given, Result]) -> Callable[Given, Result]:
    """The hook, whose refusals come without a traceback of the frontend's."""

    @wraps(hook)
    def run(*args: Given.args, **named: Given.kwargs) -> Result:
        try:
            return hook(*args, **named)
        except SetupError as error:
            raise SystemExit(f"error: {error}") from None

    return run


@_in_one_line
def get_requires_for_build_wheel(config_settings: ConfigSettings = None) -> list[str]:
    """What the frontend installs into an isolated build environment besides `requires`."""
    requirements: list[str] = _SOURCES.get_requires_for_build_wheel(config_settings)
    if _has_prebuilt():
        return requirements
    pin = pinned_torch(config_settings) or _torch_to_fetch()
    return requirements if pin is None else [*requirements, f"torch=={pin}"]


get_requires_for_build_editable = get_requires_for_build_wheel


@_in_one_line
def get_requires_for_build_sdist(config_settings: ConfigSettings = None) -> list[str]:
    requirements: list[str] = _SOURCES.get_requires_for_build_sdist(config_settings)
    return requirements


@_in_one_line
def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: ConfigSettings = None
) -> str:
    _check_build(config_settings)
    name: str = _SETUPTOOLS.prepare_metadata_for_build_wheel(metadata_directory, config_settings)
    return name


@_in_one_line
def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: ConfigSettings = None
) -> str:
    _check_build(config_settings)
    name: str = _SETUPTOOLS.prepare_metadata_for_build_editable(metadata_directory, config_settings)
    return name


@_in_one_line
def build_wheel(
    wheel_directory: str,
    config_settings: ConfigSettings = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds the wheel, tagged py3-none-PLATFORM; returns its file's name."""
    _check_torch(config_settings)
    name: str = _SETUPTOOLS.build_wheel(wheel_directory, config_settings, metadata_directory)
    return name


@_in_one_line
def build_sdist(sdist_directory: str, config_settings: ConfigSettings = None) -> str:
    """Packs the sources, with the torchship that builds them where they have one."""
    name: str = _SOURCES.build_sdist(sdist_directory, config_settings)
    return name


@_in_one_line
def build_editable(
    wheel_directory: str,
    config_settings: ConfigSettings = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds binaries and engine into the checkout, and a wheel that points there (PEP 660)."""
    _check_torch(config_settings)
    name: str = _EDITABLE.build_editable(wheel_directory, config_settings, metadata_directory)
    return name


def pinned_torch(config_settings: ConfigSettings) -> str | None:
    """The release in ``--config-settings torch=RELEASE``; None without it."""
    pin = (config_settings or {}).get(_SETTING)
    if pin is None:
        return None
    if not isinstance(pin, str) or not re.fullmatch(r"\d+(\.\d+)+(\+[\w.]+)?", pin):
        raise SetupError(
            f"--config-settings {_SETTING}={pin} names no release of torch; "
            f"write it once, as --config-settings {_SETTING}=2.13.0"
        )
    return pin


def _torch_to_fetch() -> str | None:
    """The release to build for where no torch can be imported; None where one can.

    pip hides what is installed from an isolated build, but its Python is that of the environment.
    """
    try:
        find_torch()
    except TorchNotFoundError:
        installed = [
            distribution.version
            for distribution in distributions(name="torch", path=[sysconfig.get_path("purelib")])
        ]
        if installed:
            return installed[0].partition("+")[0]
        return default_torch(read_project(Path.cwd()))
    return None


def _has_prebuilt() -> bool:
    return bool(os.environ.get(prebuilt_variable(read_project(Path.cwd()))))


def _check_build(config_settings: ConfigSettings) -> None:
    """Refuses what cannot be built, before the frontend fetches what the package requires."""
    _check_torch(config_settings)
    if not _has_prebuilt():
        with TemporaryDirectory() as folder:
            plan_build(read_project(Path.cwd()), Path(folder), lambda line: None)


def _check_torch(config_settings: ConfigSettings) -> None:
    """Refuses to build for another torch than the pinned one."""
    pin = pinned_torch(config_settings)
    if pin is None or _has_prebuilt():
        return
    try:
        version = find_torch().version
    except TorchNotFoundError as error:
        raise SetupError(
            f"--config-settings {_SETTING}={pin} asks for a build for torch {pin}, "
            f"but the build finds no torch ({error}); "
            "leave out --no-build-isolation, or install that torch"
        ) from None
    if version != pin and version.partition("+")[0] != pin:
        raise SetupError(
            f"--config-settings {_SETTING}={pin} asks for a build for torch {pin}, "
            f"but torch {version} is installed; leave out --no-build-isolation or "
            f"--config-settings, or install that torch"
        )
