"""The checks (gates) that a cell's binaries must pass before the tool packs them."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import zstandard

from ..doctor.binary import read_binary
from ..doctor.elf import Elf
from ..doctor.fatbin import codes
from ..doctor.records import RECORD_SECTION, BinaryRecord, dotted, parse_version
from . import MACHINE, ReleaseError
from .cells import Cell
from .emulation import LDD
from .paths import tool
from .shell import CommandFailed, Log, clean_env
from .tasks import Context

# The libraries that a binary may need: those of the system, torch, and CUDA's runtime and driver.
SYSTEM = r"ld-linux-(x86-64|aarch64)\.so\.\d|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so\.\d+"
TORCH = r"libtorch(_cpu|_cuda)?\.so|libc10(_cuda)?\.so|libgomp\.so\.1"
CUDA = r"libcudart\.so\.\d+|libcuda\.so\.1"
# The largest page of the platform's Linux kernels in bytes; segments must be aligned to it.
PAGE = 65536 if MACHINE == "aarch64" else 4096
ALLOWED = re.compile(f"{SYSTEM}|{TORCH}|{CUDA}")
ZSTD = b"\x28\xb5\x2f\xfd"  # the first bytes of an image that nvcc has compressed
# The hash of nvcc's options (such as architectures) in a private symbol's name; it is not compared.
PRIVATE = re.compile(rb"[0-9a-f]{8}(?=_\d+_\w+_cu_)|(?<=_cu_)[0-9a-f]{8}")


def audit(
    context: Context,
    *,
    cell: Cell,
    env: Path,
    binaries: Sequence[Path],
    manylinux: str,
    toolkit: Path | None,
    natives: Sequence[Path],
) -> Sequence[Path]:
    """Checks every binary of the cell, and logs its size and the symbol versions that it needs.

    `env` is the environment with the torch that the glue was compiled against, and `toolkit` the
    CUDA toolkit that a task made, if any: objects of clang need the toolkit's runtime library. In a
    run for another platform, `natives` are this machine's own builds of the CUDA kernels. Returns
    no path; raises ReleaseError with every problem.
    """
    torch_lib = next(env.glob("lib/python*/site-packages/torch/lib"))
    folders = (torch_lib, *(toolkit.glob("cuda/lib64") if toolkit else ()))
    problems = [text for path in binaries for text in gates(context.log, path, cell, *folders)]
    for path, native in ((p, n) for p in binaries for n in natives if p.name == n.name):
        text, differ = compare(path, native)
        context.log.write(text)
        problems += [f"{path.name}: its code for {arch} is not that of {native}" for arch in differ]
    for record in map(read_binary, binaries):
        problems += too_new(record, manylinux)
        floors = ", ".join(f"{k}_{dotted(v)}" for k, v in record.floors.items())
        context.log.write(f"{record.path.name}: {record.size} bytes, needs {floors}")
    if problems:
        raise ReleaseError("\n".join(problems))
    return []


def gates(log: Log, path: Path, cell: Cell, *folders: Path) -> list[str]:
    """The problems of one shared object of a cell, except symbol versions that are too new.

    `folders` hold the libraries that a process loads before the object: torch and the CUDA runtime.
    """
    record = read_binary(path)
    problems = [*_problems(record, cell)]
    env = clean_env(LD_LIBRARY_PATH=":".join(map(str, folders)))
    # ldd only resolves the symbols; it runs no code of the object.
    done = subprocess.run([LDD, "-r", str(path)], env=env, capture_output=True, text=True)
    log.write(f"$ ldd -r {path}\n{done.stdout}{done.stderr}")
    bad = [
        line
        for line in (done.stdout + done.stderr).splitlines()
        if "undefined symbol" in line or ("not found" in line and "libcu" not in line)
    ]
    problems += [f"{path.name}: {line.strip()}" for line in bad[:5]]
    if not cell.stable or record.kind != "glue":
        return problems
    if sys.version_info < (3, 11):
        log.write("torch-abi-audit needs Python 3.11; only the check for C++ symbols was made")
        return problems
    try:
        log.run([tool("torch-abi-audit"), "--check", "torch", "-v", path])
    except CommandFailed as error:
        problems.append(f"{path.name}: torch-abi-audit refuses it: {error.said.splitlines()[-1]}")
    return problems


def too_new(record: BinaryRecord, manylinux: str) -> list[str]:
    """A text for each symbol version that is newer than `manylinux`, such as `2.34`, allows."""
    name = f"manylinux_{manylinux.replace('.', '_')}_{MACHINE}"
    known = {policy.name: policy.symbol_versions for policy in policies()}
    if name not in known:
        text = f"build_matrix.yaml: package.manylinux: no {name}"
        raise ReleaseError(f"{text}; there are {', '.join(known)}")
    problems = []
    for kind, version in record.floors.items():
        newest = max(filter(None, map(parse_version, known[name][kind])))
        if version > newest:
            problems.append(
                f"{record.path.name}: needs {kind}_{dotted(version)}, {name} has at most "
                f"{kind}_{dotted(newest)}; build with an older compiler or in a manylinux image"
            )
    return problems


def policies() -> Any:
    """auditwheel's manylinux policies for the platform of this run."""
    from auditwheel.architecture import Architecture
    from auditwheel.libc import Libc
    from auditwheel.policy import WheelPolicies

    return WheelPolicies(libc=Libc.GLIBC, arch=Architecture[MACHINE])


def _problems(record: BinaryRecord, cell: Cell) -> Iterator[str]:
    name = record.path.name
    for problem in record.problems:
        yield f"{name}: {problem}"
    if record.record is None:
        yield f"{name}: carries no build record (section {RECORD_SECTION}); was it stripped?"
        return
    if record.platform != cell.platform:
        text = f"{name}: is built for {record.platform}, the cell needs {cell.platform}"
        yield f"{text}; set CXX to a compiler for that platform"
    if record.alignment < PAGE:
        text = f"{name}: its segments are aligned to {record.alignment} bytes"
        yield f"{text}, pages have up to {PAGE}; link with -z max-page-size"
    if record.python_symbols:
        yield f"{name}: references Python ({', '.join(record.python_symbols[:3])}); it must not"
    if record.runpath:
        yield f"{name}: has the RPATH {record.runpath}; link without -rpath"
    for library in record.needed:
        if not ALLOWED.fullmatch(library):
            yield f"{name}: needs {library}, which is outside the allowed libraries"
    if record.kind == "glue":
        if record.name != cell.glue:
            yield f"{name}: its record says {record.name}, the cell needs {cell.glue}"
        if cell.stable:
            mangled = [s for s in record.torch_symbols if s.startswith("_Z")]
            if mangled:
                yield f"{name}: uses torch's C++ symbols ({mangled[0]}); stable glue must not"
        elif record.cxx11_abi != cell.cxx11_abi:
            yield f"{name}: has C++ ABI {record.cxx11_abi}, the cell needs {cell.cxx11_abi}"
    elif record.torch_symbols:
        yield f"{name}: kernels must not know torch, but use {record.torch_symbols[0]}"


def machine_code(path: Path) -> dict[str, list[str]]:
    """The sorted hashes of the GPU machine code in a shared object, by architecture.

    The function leaves out PTX, and the linker's own images, which hold no code.
    """
    found: dict[str, list[str]] = {}
    data = path.read_bytes()
    with Elf(path) as elf:
        for code in (code for code in codes(elf) if not code.ptx):
            image = data[code.at : code.at + code.size]
            if image.startswith(ZSTD):
                image = zstandard.ZstdDecompressor().decompressobj().decompress(image)
            if b".text." in image:
                text = PRIVATE.sub(b"", image)
                found.setdefault(str(code), []).append(hashlib.sha256(text).hexdigest())
    return {arch: sorted(hashes) for arch, hashes in found.items()}


def compare(path: Path, other: Path) -> tuple[str, list[str]]:
    """Compares two builds; returns a text for the log, and the architectures whose code differs.

    Builds of different commits or CUDA versions are not compared; the file `other` may be missing.
    """
    records = (read_binary(file).record for file in (path, other))
    mine, its = (json.loads(record.text) if record else {} for record in records)
    if any(mine.get(fact) != its.get(fact, "") for fact in ("git_commit", "cuda")):
        return f"{path.name}: another platform has no build of this commit and CUDA", []
    left, right = machine_code(path), machine_code(other)
    common = [arch for arch in left if arch in right]
    differ = [arch for arch in common if left[arch] != right[arch]]
    same = ", ".join(arch for arch in common if arch not in differ) or "no architecture"
    return f"{path.name}: its machine code for {same} is that of {its['platform']}'s build", differ
