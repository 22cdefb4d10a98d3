"""The checks that a cell's binaries must pass before the tool packs them."""

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from ....builder.cuda_libraries import CUDA_LIBRARIES
from ....judge.reading.binary import read_binary
from ....judge.reading.elf import Elf
from ....judge.reading.fatbin import codes
from ....judge.records import RECORD_SECTION, BinaryRecord, dotted, parse_version
from ... import ReleaseError
from ...matrix.cells import Cell
from ...matrix.platforms import PLATFORMS, facts_of
from ...paths import tool
from ...plan.plan import Plan
from ...run.shell import CommandFailed, Log, clean_env
from ...run.tasks import CheckTask, Context, Task, Tasks
from ..step import CellStep
from . import emulation
from .environments import MakeTorchEnv
from .objects import objects_of
from .toolchains import MakeToolkit

if TYPE_CHECKING:
    from auditwheel.policy import WheelPolicies

# The libraries that a binary may need: those of the system, torch, and CUDA's runtime, driver
# and those of its libraries that torch brings.
LOADERS = "|".join(facts.loader for facts in PLATFORMS.values())
SYSTEM = rf"{LOADERS}|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so\.\d+"
TORCH = r"libtorch(_cpu|_cuda)?\.so|libc10(_cuda)?\.so|libgomp\.so\.1"
CUDA = rf"lib(cudart|{'|'.join(CUDA_LIBRARIES)})\.so\.\d+|libcuda\.so\.1"
ALLOWED = re.compile(f"{SYSTEM}|{TORCH}|{CUDA}")
ZSTD = b"\x28\xb5\x2f\xfd"  # the first bytes of an image that nvcc has compressed
# The hash of nvcc's options (such as architectures) in a private symbol's name; it is not
# compared.
PRIVATE = re.compile(rb"[0-9a-f]{8}(?=_\d+_\w+_cu_)|(?<=_cu_)[0-9a-f]{8}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit(CellStep[None], CheckTask):
    """Checks every binary of the cell, and logs its size and the symbol versions that it needs.

    `torch_env` makes the environment with the torch that the glue was compiled against, and
    `toolkit` the CUDA toolkit, if a task makes it: objects of clang need the toolkit's
    runtime library. In a run for another platform, `natives` are this machine's own builds
    of the CUDA kernels. The step has no outputs; it raises ReleaseError with every problem.
    """

    kind = "audit"
    cell: Cell
    torch_env: Task[Path]
    binaries: tuple[Task[Path], ...]
    toolkit: Task[Path] | None
    manylinux: str
    natives: tuple[Path, ...]

    @classmethod
    def plan(cls, cell: Cell, plan: Plan) -> "Audit":
        natives = emulation.natives(cell, plan.settings)
        step = cls(
            name=f"{cls.kind}/{cell}",
            cell=cell,
            binaries=objects_of(cell, plan),
            torch_env=MakeTorchEnv.plan(cell, plan),
            toolkit=MakeToolkit.plan(str(cell.variant.kernels), cell, plan),
            manylinux=plan.settings.matrix.package.manylinux,
            natives=natives,
            inputs=tuple(path for path in natives if path.exists()),
        )
        return plan.add(step, cell)

    @property
    def reads(self) -> Tasks:
        return (self.torch_env, *self.binaries, *([self.toolkit] if self.toolkit else []))

    def run(self, context: Context) -> Sequence[Path]:
        binaries = context.outputs(self.binaries)
        problems: list[str] = []
        for path in binaries:
            problems += object_problems(
                context.log,
                path,
                self.cell,
                folders=self._libraries(context),
                ldd=emulation.ldd_of(context.settings),
            )
        problems += self._differences(context.log, binaries)
        for record in map(read_binary, binaries):
            problems += too_new(record, self.manylinux, self.cell.machine)
            floors = ", ".join(f"{kind}_{dotted(v)}" for kind, v in record.floors.items())
            context.log.write(f"{record.path.name}: {record.size} bytes, needs {floors}")
        if problems:
            raise ReleaseError("\n".join(problems))
        return []

    def _libraries(self, context: Context) -> list[Path]:
        """The folders with the libraries of torch and of CUDA's runtime."""
        folders = [next(context.output(self.torch_env).glob("lib/python*/site-packages/torch/lib"))]
        if self.toolkit:
            folders += context.output(self.toolkit).glob("cuda/lib64")
        return folders

    def _differences(self, log: Log, binaries: Sequence[Path]) -> list[str]:
        problems = []
        for path in binaries:
            for native in (native for native in self.natives if native.name == path.name):
                summary, differing = compare(path, native)
                log.write(summary)
                problems += [
                    f"{path.name}: its code for {arch} is not that of {native}"
                    for arch in differing
                ]
        return problems


def object_problems(
    log: Log, path: Path, cell: Cell, *, folders: Sequence[Path] = (), ldd: str = "ldd"
) -> list[str]:
    """The problems of one shared object of a cell, except symbol versions that are too new.

    `folders` hold the libraries that a process loads before the object: torch and the CUDA
    runtime. `ldd` is a program that resolves the symbols of an object for the cell's
    platform.
    """
    record = read_binary(path)
    problems = list(record_problems(record, cell))
    env = clean_env(log.settings.project, LD_LIBRARY_PATH=":".join(map(str, folders)))
    # ldd only resolves the symbols; it runs no code of the object.
    process = subprocess.run([ldd, "-r", str(path)], env=env, capture_output=True, text=True)
    output = process.stdout + process.stderr
    log.write(f"$ ldd -r {path}\n{output}")
    unresolved = [
        line
        for line in output.splitlines()
        if "undefined symbol" in line or ("not found" in line and "libcu" not in line)
    ]
    problems += [f"{path.name}: {line.strip()}" for line in unresolved[:5]]
    if not cell.stable or record.kind != "glue":
        return problems
    program = Path(tool("torch-abi-audit"))
    if not program.is_absolute():
        log.write(
            "torch-abi-audit, which needs Python 3.11, is not installed; only the check for C++ "
            "symbols was made"
        )
        return problems
    try:
        log.run([program, "--check", "torch", "-v", path])
    except CommandFailed as error:
        reason = error.log_end.splitlines()[-1]
        problems.append(f"{path.name}: torch-abi-audit refuses it: {reason}")
    return problems


def too_new(record: BinaryRecord, manylinux: str, machine: str) -> list[str]:
    """A text for each symbol version that is newer than `manylinux`, such as `2.34`, allows."""
    name = f"manylinux_{manylinux.replace('.', '_')}_{machine}"
    allowed = {policy.name: policy.symbol_versions for policy in policies(machine)}
    if name not in allowed:
        raise ReleaseError(
            f"build_matrix.yaml: package.manylinux: no {name}; there are {', '.join(allowed)}"
        )
    problems = []
    for kind, version in record.floors.items():
        newest = max(filter(None, map(parse_version, allowed[name][kind])))
        if version > newest:
            problems.append(
                f"{record.path.name}: needs {kind}_{dotted(version)}, {name} has at most "
                f"{kind}_{dotted(newest)}; build with an older compiler or in a manylinux image"
            )
    return problems


def policies(machine: str) -> "WheelPolicies":
    """auditwheel's manylinux policies for a machine."""
    from auditwheel.architecture import Architecture
    from auditwheel.libc import Libc
    from auditwheel.policy import WheelPolicies

    return WheelPolicies(libc=Libc.GLIBC, arch=Architecture[machine])


def record_problems(record: BinaryRecord, cell: Cell) -> Iterator[str]:
    """The problems of a binary that its headers, its symbols and its build record show."""
    name = record.path.name
    for problem in record.problems:
        yield f"{name}: {problem}"
    if record.record is None:
        yield f"{name}: carries no build record (section {RECORD_SECTION}); was it stripped?"
        return
    yield from _problems_of_any_object(record, cell)
    if record.kind == "glue":
        yield from _problems_of_glue(record, cell)
    elif record.torch_symbols:
        yield f"{name}: kernels must not know torch, but use {record.torch_symbols[0]}"


def _problems_of_any_object(record: BinaryRecord, cell: Cell) -> Iterator[str]:
    name = record.path.name
    if record.platform != cell.platform:
        yield (
            f"{name}: is built for {record.platform}, the cell needs {cell.platform}; "
            "set CXX to a compiler for that platform"
        )
    largest_page = facts_of(cell.platform).page_size
    if record.alignment < largest_page:
        yield (
            f"{name}: its segments are aligned to {record.alignment} bytes, "
            f"pages have up to {largest_page}; link with -z max-page-size"
        )
    if record.python_symbols:
        yield f"{name}: references Python ({', '.join(record.python_symbols[:3])}); it must not"
    if record.runpath:
        yield f"{name}: has the RPATH {record.runpath}; link without -rpath"
    for library in record.needed:
        if not ALLOWED.fullmatch(library):
            yield f"{name}: needs {library}, which is outside the allowed libraries"


def _problems_of_glue(record: BinaryRecord, cell: Cell) -> Iterator[str]:
    name = record.path.name
    if record.name != cell.glue_object:
        yield f"{name}: its record says {record.name}, the cell needs {cell.glue_object}"
    if cell.stable:
        mangled = [symbol for symbol in record.torch_symbols if symbol.startswith("_Z")]
        if mangled:
            yield f"{name}: uses torch's C++ symbols ({mangled[0]}); stable glue must not"
    elif record.cxx11_abi != cell.cxx11_abi:
        yield f"{name}: has C++ ABI {record.cxx11_abi}, the cell needs {cell.cxx11_abi}"


def machine_code(path: Path) -> dict[str, list[str]]:
    """The sorted hashes of the GPU machine code in a shared object, by architecture.

    The function leaves out PTX, and the linker's own images, which hold no code.
    """
    hashes: dict[str, list[str]] = {}
    data = path.read_bytes()
    with Elf(path) as elf:
        for code in (code for code in codes(elf) if not code.ptx):
            image = data[code.at : code.at + code.size]
            if image.startswith(ZSTD):
                image = zstandard.ZstdDecompressor().decompressobj().decompress(image)
            if b".text." in image:
                comparable = PRIVATE.sub(b"", image)
                hashes.setdefault(str(code), []).append(hashlib.sha256(comparable).hexdigest())
    return {arch: sorted(values) for arch, values in hashes.items()}


def compare(path: Path, other: Path) -> tuple[str, list[str]]:
    """Compares two builds; returns a text for the log, and the architectures whose code differs.

    Builds of different commits or CUDA versions are not compared; the file `other` may be
    missing.
    """
    own_record = _record_of(path)
    other_record = _record_of(other)
    if any(own_record.get(key) != other_record.get(key, "") for key in ("git_commit", "cuda")):
        return f"{path.name}: another platform has no build of this commit and CUDA", []
    own_code = machine_code(path)
    other_code = machine_code(other)
    common = [arch for arch in own_code if arch in other_code]
    differing = [arch for arch in common if own_code[arch] != other_code[arch]]
    same = ", ".join(arch for arch in common if arch not in differing) or "no architecture"
    platform = other_record["platform"]
    return f"{path.name}: its machine code for {same} is that of {platform}'s build", differing


def _record_of(path: Path) -> dict[str, str]:
    """The build record of a binary as a mapping; empty if there is none."""
    record = read_binary(path).record
    return json.loads(record.text) if record else {}
