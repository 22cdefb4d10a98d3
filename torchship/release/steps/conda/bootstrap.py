"""A base conda channel made of PyPI's wheels and of this host's Python and compiler.

It lets the tool build, solve, install and run our own package where no conda channel is in
reach. The channel is only for tests on this machine: its packages contain the host's Python
and libraries, so nobody may publish them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

from packaging.metadata import Metadata
from packaging.utils import canonicalize_name, parse_wheel_filename

from ...matrix.settings import Settings
from ...paths import tool
from ..compile.environments import python_facts
from .stubs import Stub, linked_torch, write_channel

SUMMARY = "Bootstrap package for tests on this machine, never for publishing"
# Names that differ between PyPI and conda-forge.
CONDA_NAMES = {
    "build": "python-build",
    "ruamel-yaml": "ruamel.yaml",
    "torch": "pytorch",
    "typing-extensions": "typing_extensions",
}
# Entries of the standard library's folder that our tests do not need, and the mark by which Debian
# and others forbid pip to install anything.
STDLIB_LEFT_OUT = (
    "site-packages",
    "dist-packages",
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "__pycache__",
    "EXTERNALLY-MANAGED",
)
# Debian's Python reads dist-packages alone, and installs below `local`. Here it takes site-packages
# as conda's does; _get_preferred_schemes is what distributors are to override.
SITECUSTOMIZE = """\
import site, sys, sysconfig
site.addsitedir(sys.prefix + "/lib/python{}/site-packages")
sysconfig._get_preferred_schemes = lambda: dict(
    prefix="posix_prefix", home="posix_home", user="posix_user"
)
"""


def conda_name(pypi: str) -> str:
    name = canonicalize_name(pypi)
    return CONDA_NAMES.get(name, name)


def stage_python(root: Path, facts: dict[str, str]) -> Stub:
    """Puts an interpreter and its standard library into `root`.

    Returns the package's metadata.
    """
    minor = facts["minor"]
    stdlib = root / "lib" / f"python{minor}"
    left_out = shutil.ignore_patterns(*STDLIB_LEFT_OUT)
    shutil.copytree(facts["stdlib"], stdlib, ignore=left_out, ignore_dangling_symlinks=True)
    (stdlib / "sitecustomize.py").write_text(SITECUSTOMIZE.format(minor))
    (stdlib / "site-packages").mkdir()
    (stdlib / "site-packages" / "README.txt").write_text("Packages are installed here.\n")
    binary = root / "bin" / f"python{minor}"
    binary.parent.mkdir()
    shutil.copy(facts["exe"], binary)
    for name in ("python3", "python"):
        (root / "bin" / name).symlink_to(binary.name)
    for library in Path(facts["prefix"], "lib").glob(f"libpython{minor}*.so*"):
        shutil.copy(library, root / "lib" / library.name, follow_symlinks=False)
    if Path(facts["include"]).is_dir():
        shutil.copytree(facts["include"], root / "include" / f"python{minor}")
    if binary.read_bytes()[:2] != b"#!":  # not the script that starts the interpreter under qemu
        rpath = ["--force-rpath", "--set-rpath", "$ORIGIN/../lib"]
        subprocess.run([tool("patchelf"), *rpath, binary], check=True)
    return Stub("python", facts["version"], f"bootstrap_{minor.replace('.', '')}_0")


def stage_wheel(root: Path, wheel: Path, minor: str, machine: str) -> Stub:
    """Unpacks a wheel into `root`, and returns metadata."""
    name, version, _, _ = parse_wheel_filename(wheel.name)
    site = root / "lib" / f"python{minor}" / "site-packages"
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    (metadata,) = site.glob("*.dist-info/METADATA")
    needs = Metadata.from_email(metadata.read_bytes(), validate=False).requires_dist or ()
    environment = {"python_version": minor, "platform_machine": machine, "extra": ""}
    depends = [
        f"{conda_name(need.name)} {need.specifier}".strip()
        for need in needs
        if need.marker is None or need.marker.evaluate(environment)
    ]
    for data in site.glob("*.data"):
        places = {"purelib": site, "platlib": site, "scripts": root / "bin", "data": root}
        for kind in data.iterdir():
            shutil.copytree(kind, places.get(kind.name, root / "share"), dirs_exist_ok=True)
        shutil.rmtree(data)
    for program in root.glob("bin/*"):
        program.chmod(0o755)
    tag = f"py{minor.replace('.', '')}_0"
    return Stub(conda_name(name), version.public, tag, depends=(f"python {minor}.*", *depends))


def compiler(subdir: str) -> Stub:
    """A package that sets CXX to the host's g++."""
    gxx = shutil.which("g++")
    if gxx is None:
        raise SystemExit("g++ is missing; install it (Debian: apt-get install g++)")
    command = [gxx, "-dumpfullversion"]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    script = {"etc/conda/activate.d/gxx.sh": f"export CXX={gxx}\n"}
    return Stub(f"gxx_{subdir}", process.stdout.strip(), "bootstrap_0", files=script)


def sysroot(subdir: str) -> Stub:
    """A package without files, since builds use the host's own C library."""
    host = str(os.confstr("CS_GNU_LIBC_VERSION")).split()[-1]
    exports = {"strong": (f"__glibc >={host}",)}
    return Stub(f"sysroot_{subdir}", "2.28", "bootstrap_0", run_exports=exports)


def build_channel(
    out: Path, wheels: list[Path], python: str, settings: Settings, *, torch: Path | None = None
) -> None:
    """Packs every package of the channel into `out`; the caller indexes the channel.

    Its pytorch links to the environment `torch`; without one, the channel has no pytorch. A
    channel for another platform has two Pythons: this machine's, which builds our package, and
    `python`, which runs our package in a prefix of that platform.
    """
    subdir = settings.subdir
    tools = [sysroot(subdir)]
    if not settings.is_foreign:
        tools.append(compiler(subdir))
    if torch:
        tools += linked_torch(torch, python_facts(python, modules="sys")["minor"])
    write_channel(out, tools, subdir=subdir)
    own = base_executable()
    for folder, interpreter in {settings.native_subdir: own, subdir: python}.items():
        facts = python_facts(interpreter, modules="sys")
        (out / folder).mkdir(parents=True, exist_ok=True)
        for wheel in (None, *wheels):
            with tempfile.TemporaryDirectory(prefix="stage-", dir=out.parent) as stage:
                if wheel:
                    package = stage_wheel(Path(stage), wheel, facts["minor"], settings.machine)
                else:
                    package = stage_python(Path(stage), facts)
                _assemble(package, Path(stage), out / folder)
            print(f"{package.name} {package.version}", flush=True)


def link_distributions(
    folder: Path, versions: Mapping[str, str], site: Path, python: str, *, subdir: str
) -> Path:
    """Writes a channel with a package for each distribution of `versions`, as is in `site`.

    The packages hold no files but a link to that folder. Returns `folder`.
    """
    packages = [
        Stub(
            name=conda_name(name),
            version=version,
            build="linked_0",
            depends=(f"python {python}.*",),
            files={f"lib/python{python}/site-packages/linked-{name}.pth": f"{site}\n"},
        )
        for name, version in versions.items()
    ]
    return write_channel(folder, packages, subdir=subdir)


def base_executable() -> str:
    """The interpreter from which the tool's environment was made."""
    executable: str = getattr(sys, "_base_executable")  # noqa: B009 - no stub has this name
    return executable


def _assemble(package: Stub, files: Path, folder: Path) -> None:
    """Packs `files` as a `.conda` package into `folder`, whose name is conda's platform."""
    from rattler_build import assemble_package

    assemble_package(
        package.name,
        package.version,
        folder.name,
        package.build,
        folder,
        files_dir=str(files),
        depends=list(package.depends),
        summary=SUMMARY,
        compression_level=1,
        detect_prefix=False,
    )
