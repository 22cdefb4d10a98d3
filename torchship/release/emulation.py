"""Names the cross compiler for another platform, and sets up that platform's Python under qemu.

A small script starts this Python. uv and pip treat the script as an interpreter, and this Python's
`sys.executable` names the script, so a run for another platform takes most steps of a native run.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from ..builder import HostCompiler
from . import BUILD, FOREIGN, MACHINE, PLATFORM
from .environments import apt
from .paths import fresh, write_script
from .shell import output_of
from .tasks import Context

ROOT = BUILD / "root"
PYTHON = ROOT / "usr" / "bin" / "python3"
QEMU = f"qemu-{MACHINE}"
GXX = f"{MACHINE}-linux-gnu-g++"
PACKAGES = f"g++-{MACHINE.replace('_', '-')}-linux-gnu qemu-user"
# The program that resolves the symbols of a shared object without running the object.
LDD = str(PYTHON.with_name("ldd")) if FOREIGN else "ldd"


def compilers(env: Mapping[str, str]) -> dict[str, str]:
    """A copy of `env`; in a run for another platform, CXX is the cross compiler by default."""
    return {**env, "CXX": env.get("CXX") or GXX} if FOREIGN else dict(env)


def settings() -> dict[str, str]:
    """The environment variables for programs under qemu, which is slow; none in a native run.

    With EMULATED, the smoke test leaves out its largest size. Waiting threads do not spin.
    """
    return {"EMULATED": "1", "OMP_WAIT_POLICY": "passive"} if FOREIGN else {}


def missing(compiler: HostCompiler | None) -> str | None:
    """The missing or wrong tools for the platform of this run, with a remedy; None if all fit."""
    if compiler and (compiler.machine or MACHINE) != MACHINE:
        text = f"{compiler} compiles for linux-{compiler.machine}, this run is for {PLATFORM}"
        return f"{text}; set CXX to one for that platform" + (", or unset CXX" if FOREIGN else "")
    if not FOREIGN:
        return None
    lacks = [] if compiler else [GXX]
    lacks += [name for name in (QEMU, "apt-get", "dpkg") if not shutil.which(name)]
    if not lacks and not python_minor():
        lacks = ["python3 in apt's lists (run apt-get update)"]
    hint = f"apt-get install {PACKAGES}"
    remedy = f"on Debian: {hint}; or run the same command on a {PLATFORM} machine"
    return f"cross: no {' and no '.join(lacks)}; {remedy}" if lacks else None


@cache  # apt-cache takes most of a second, and the tool asks for every cell
def python_minor() -> str:
    """The minor version of Debian's Python, such as `3.11`; empty if apt knows no such package."""
    said = output_of("apt-cache", "depends", "python3") or ""
    found = re.search(r"Depends: python(3\.\d+)", said)
    return found[1] if found else ""


def version() -> str | None:
    """qemu's name and version, such as `qemu-aarch64 7.2.15`; None if there is no qemu."""
    found = re.search(r"version (\S+)", output_of(QEMU, "--version") or "")
    return f"{QEMU} {found[1]}" if found else None


def root(context: Context, *, debian: str, minor: str) -> Sequence[Path]:
    """Unpacks Debian's Python for the run's platform; returns the scripts `python3` and `ldd`."""
    log, place = context.log, fresh(ROOT)
    apt(log, place, [f"python{minor}", "libstdc++6", "libgomp1"], debian)
    (loader,) = place.glob("lib/ld-linux-*.so.*")
    write_script(PYTHON, f'exec {QEMU} -L "{place}" -0 "$0" "{place}/usr/bin/python{minor}" "$@"')
    write_script(
        Path(LDD),  # this script replaces `ldd -r FILE`
        "libraries=$LD_LIBRARY_PATH; unset LD_LIBRARY_PATH; shift\n"
        f'exec {QEMU} -L "{place}" -E LD_TRACE_LOADED_OBJECTS=1 -E LD_WARN=yes -E LD_BIND_NOW=yes '
        f'-E "LD_LIBRARY_PATH=$libraries" "{loader}" "$@"',
    )
    log.run([PYTHON, "-c", "import platform; print(platform.platform())"])
    return [PYTHON, Path(LDD)]
