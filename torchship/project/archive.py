"""The wheel of this very torchship, as one archive for a project's `vendor`.

An installed or unpacked torchship gives the bytes of the wheel that it came from; a checkout builds
that wheel.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..builder.programs import OLDEST_SETUPTOOLS
from .errors import ProjectError

_TORCHSHIP = Path(__file__).resolve().parents[1]
#: What a wheel has in its dist-info. An installer adds others, and RECORD lists the rest.
_METADATA = ("METADATA", "WHEEL", "entry_points.txt", "top_level.txt")
#: Writes the dist-info, and which file of the wheel is which file here; it writes nothing else.
_LIST = """\
import json, os, sys
from setuptools import Distribution
folder, packed = sys.argv[1:]
distribution = Distribution({"script_name": "setup.py"})
distribution.parse_config_files()
info = distribution.get_command_obj("dist_info")
info.output_dir = folder
info.ensure_finalized()
info.run()
wheel = distribution.get_command_obj("bdist_wheel")
wheel.ensure_finalized()
wheel.write_wheelfile(info.dist_info_dir)
modules = distribution.get_command_obj("build_py")
modules.ensure_finalized()
mapping = modules.get_output_mapping()
files = {os.path.relpath(name, modules.build_lib): mapping[name] for name in mapping}
with open(packed, "w") as file:
    json.dump(files, file)
"""
_DATE = (1980, 1, 1, 0, 0, 0)


def make_archive(folder: Path) -> Path:
    """Writes the wheel into `folder`; the same torchship gives the same bytes."""
    metadata = _find_metadata()
    if metadata is None:
        return _build(folder)
    files = {
        f"torchship/{path.relative_to(_TORCHSHIP)}": path.read_bytes()
        for path in _TORCHSHIP.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts
    }
    licenses = (path for path in (metadata / "licenses").rglob("*") if path.is_file())
    for path in (*(metadata / name for name in _METADATA), *licenses):
        if path.is_file():
            files[f"{metadata.name}/{path.relative_to(metadata)}"] = path.read_bytes()
    target = folder / f"{metadata.name.removesuffix('.dist-info')}-py3-none-any.whl"
    _write_wheel(target, files, metadata.name)
    return target


def _find_metadata() -> Path | None:
    """The dist-info beside this torchship; None in a checkout."""
    if (_TORCHSHIP / "pyproject.toml").is_file():
        return None
    folders = list(_TORCHSHIP.parent.glob("torchship-*.dist-info"))
    if len(folders) != 1:
        names = ", ".join(folder.name for folder in folders) or "none"
        raise ProjectError(
            f"{_TORCHSHIP.parent} must hold one torchship-*.dist-info, got {names}; "
            "install torchship again"
        )
    return folders[0]


def _write_wheel(target: Path, files: Mapping[str, bytes], metadata: str) -> None:
    """Packs files sorted, without dates, owners and modes of their own; RECORD is the last."""
    lines = [
        f"{name},sha256={_record_hash(files[name])},{len(files[name])}" for name in sorted(files)
    ]
    record = f"{metadata}/RECORD"
    content = "\n".join([*lines, f"{record},,", ""]).encode()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in (*sorted(files), record):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content if name == record else files[name])


def _record_hash(content: bytes) -> str:
    return urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()


def _build(folder: Path) -> Path:
    """The wheel of a checkout, of the files that its setuptools would pack."""
    if _setuptools_major() < OLDEST_SETUPTOOLS:
        return _build_by_pip(folder)
    with tempfile.TemporaryDirectory(prefix="torchship-") as temporary:
        packed = Path(temporary, "packed.json")
        command = [sys.executable, "-I", "-c", _LIST, temporary, str(packed)]
        result = subprocess.run(
            command, cwd=_TORCHSHIP, capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise ProjectError(
                f"setuptools of {sys.executable} cannot build the wheel of {_TORCHSHIP}; look at "
                f"the cause, which it printed:\n{result.stdout}{result.stderr}"
            )
        files = {
            name: (_TORCHSHIP / source).read_bytes()
            for name, source in json.loads(packed.read_text(encoding="utf-8")).items()
        }
        (info,) = Path(temporary).glob("*.dist-info")
        for path in info.rglob("*"):
            if path.is_file():
                files[f"{info.name}/{path.relative_to(info).as_posix()}"] = path.read_bytes()
        target = folder / f"{info.name.removesuffix('.dist-info')}-py3-none-any.whl"
        _write_wheel(target, files, info.name)
    return target


def _build_by_pip(folder: Path) -> Path:
    """Builds the wheel with a setuptools that pip fetches, in a copy, since that leaves files."""
    with tempfile.TemporaryDirectory(prefix="torchship-") as temporary:
        sources = Path(temporary, "torchship")
        _copy_sources(sources)
        wheels = Path(temporary, "wheels")
        wheels.mkdir()
        command = [sys.executable, "-I", "-m", "pip", "wheel", "--quiet", "--no-deps"]
        command += ["--wheel-dir", str(wheels), "."]
        result = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
        if result.returncode:
            installed = _setuptools_major() or "none"
            raise ProjectError(
                f"the wheel of {_TORCHSHIP} needs setuptools {OLDEST_SETUPTOOLS} or newer, "
                f"{sys.executable} has {installed}, and pip could not fetch one for the build; "
                f'run {sys.executable} -m pip install --upgrade "setuptools>={OLDEST_SETUPTOOLS}", '
                f"then the same command again:\n{result.stdout}{result.stderr}"
            )
        (path,) = wheels.glob("*.whl")
        with zipfile.ZipFile(path) as wheel:
            files = {entry: wheel.read(entry) for entry in wheel.namelist()}
    metadata = next(entry for entry in files if entry.endswith(".dist-info/RECORD"))
    del files[metadata]
    target = folder / path.name
    _write_wheel(target, files, metadata.rpartition("/")[0])
    return target


def _setuptools_major() -> int:
    """The major version of this Python's setuptools; 0 without setuptools."""
    try:
        return int(version("setuptools").partition(".")[0])
    except PackageNotFoundError:
        return 0


def _copy_sources(target: Path) -> None:
    for path in _TORCHSHIP.rglob("*"):
        name = path.relative_to(_TORCHSHIP)
        if path.is_file() and not {"build", "__pycache__"} & set(name.parts):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(path.read_bytes())
