"""Names the cross compiler for another platform, and sets up that platform's Python under qemu.

A small script starts this Python. uv and pip treat the script as an interpreter, and this
Python's `sys.executable` names the script, so a run for another platform takes most steps
of a native run.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ....builder import HostCompiler
from ...matrix.cells import Cell
from ...matrix.schema import Tool
from ...matrix.settings import Settings
from ...paths import fresh, write_script
from ...plan.plan import Plan
from ...run.shell import output_of
from ...run.tasks import Context, FileTask, Tasks
from .downloads import apt

#: Why a step is not planned in a run for another platform.
SLOW = "under qemu it would be slow; the run of the thin wheel tries the same binaries"


def root_of(settings: Settings) -> Path:
    """The folder with the files of the other platform's Python."""
    return settings.build / "root"


def python_of(settings: Settings) -> Path:
    """The script that starts the other platform's Python."""
    return root_of(settings) / "usr" / "bin" / "python3"


def ldd_of(settings: Settings) -> str:
    """The program that resolves the symbols of a shared object without running the object."""
    return str(python_of(settings).with_name("ldd")) if settings.is_foreign else "ldd"


def qemu_of(settings: Settings) -> str:
    return f"qemu-{settings.machine}"


def cross_compiler_of(settings: Settings) -> str:
    return f"{settings.machine}-linux-gnu-g++"


def debian_packages_of(settings: Settings) -> str:
    """Debian's packages with the cross compiler and qemu."""
    return f"g++-{settings.machine.replace('_', '-')}-linux-gnu qemu-user"


def compilers(env: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """A copy of `env`.

    In a run for another platform, CXX is the cross compiler by default.
    """
    if not settings.is_foreign:
        return dict(env)
    return {**env, "CXX": env.get("CXX") or cross_compiler_of(settings)}


def variables(settings: Settings) -> dict[str, str]:
    """The environment variables for programs that run the package.

    Waiting threads do not spin, since other steps run beside them. Under qemu, which is slow,
    EMULATED makes the smoke test leave out its largest size.
    """
    passive = {"OMP_WAIT_POLICY": "passive"}
    return {**passive, "EMULATED": "1"} if settings.is_foreign else passive


def missing(compiler: HostCompiler | None, settings: Settings) -> str | None:
    """The missing or wrong tools for the platform of this run, with a remedy.

    None if all fit.
    """
    if compiler and (compiler.machine or settings.machine) != settings.machine:
        return (
            f"{compiler} compiles for linux-{compiler.machine}, this run is for "
            f"{settings.platform}; set CXX to one for that platform"
            + (", or unset CXX" if settings.is_foreign else "")
        )
    if not settings.is_foreign:
        return None
    lacking = [] if compiler else [cross_compiler_of(settings)]
    programs = (qemu_of(settings), "apt-get", "dpkg")
    lacking += [name for name in programs if not shutil.which(name)]
    if not lacking and not python_minor():
        lacking = ["python3 in apt's lists (run apt-get update)"]
    if not lacking:
        return None
    return (
        f"cross: no {' and no '.join(lacking)}; on Debian: apt-get install "
        f"{debian_packages_of(settings)}; or run the same command on a {settings.platform} machine"
    )


@cache  # apt-cache takes most of a second, and the tool asks for every cell
def python_minor() -> str:
    """The minor version of Debian's Python, such as `3.11`.

    Empty if apt knows no such package.
    """
    output = output_of("apt-cache", "depends", "python3") or ""
    match = re.search(r"Depends: python(3\.\d+)", output)
    return match[1] if match else ""


def version(settings: Settings) -> str | None:
    """qemu's name and version, such as `qemu-aarch64 7.2.15`; None if there is no qemu."""
    qemu = qemu_of(settings)
    match = re.search(r"version (\S+)", output_of(qemu, "--version") or "")
    return f"{qemu} {match[1]}" if match else None


@dataclass(frozen=True, eq=False, kw_only=True)
class UnpackPython(FileTask):
    """Unpacks Debian's Python for the run's platform.

    Makes the scripts `python3` and `ldd`.
    """

    debian: str
    minor: str

    @classmethod
    def plan(cls, subject: Cell | Tool, plan: Plan) -> "UnpackPython":
        settings = plan.settings
        step = cls(
            name="root",
            debian=settings.matrix.platforms[settings.platform].debian,
            minor=plan.host.python_minor,
        )
        return plan.add(step, subject)

    def run(self, context: Context) -> Sequence[Path]:
        settings = context.settings
        python = python_of(settings)
        ldd = Path(ldd_of(settings))
        qemu = qemu_of(settings)
        root = fresh(root_of(settings))
        apt(context.log, root, [f"python{self.minor}", "libstdc++6", "libgomp1"], self.debian)
        (loader,) = root.glob("lib/ld-linux-*.so.*")
        write_script(
            python, f'exec {qemu} -L "{root}" -0 "$0" "{root}/usr/bin/python{self.minor}" "$@"'
        )
        write_script(
            ldd,  # this script replaces `ldd -r FILE`
            "libraries=$LD_LIBRARY_PATH; unset LD_LIBRARY_PATH; shift\n"
            f'exec {qemu} -L "{root}" -E LD_TRACE_LOADED_OBJECTS=1 -E LD_WARN=yes '
            f'-E LD_BIND_NOW=yes -E "LD_LIBRARY_PATH=$libraries" "{loader}" "$@"',
        )
        context.log.run([python, "-c", "import platform; print(platform.platform())"])
        return [python, ldd]


def natives(cell: Cell, settings: Settings) -> tuple[Path, ...]:
    """This machine's own builds of a cell's CUDA kernels, which one for another platform must
    equal; none in a native run."""
    if not settings.is_foreign or not cell.cuda_major:
        return ()
    name = f"kernels-{cell.variant.kernels}"
    return (settings.native_binaries / name / f"{name}.so",)


def tasks(subject: Cell | Tool, plan: Plan) -> Tasks:
    """What must be done before another platform's Python runs; nothing on this machine's own."""
    return (UnpackPython.plan(subject, plan),) if plan.settings.is_foreign else ()
