"""Makes real shared objects with chosen sections, symbols and needs, and fake torch folders."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from small_client import PROJECT

ERROR_NEW = (
    "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
)
ERROR_OLD = "_ZN3c105ErrorC1ENS_14SourceLocationESs"

GLUE_RECORD: dict[str, Any] = {
    "schema": 1,
    "kind": "glue",
    "name": "stable210",
    "package": PROJECT.distribution,
    "version": PROJECT.version,
    "lane": "stable",
    "torch_target": "2.10",
    "torch_built": "2.13.0+cpu",
    "cxx11_abi": 1,
    "kernel_abi": 1,
    "compiler": "g++ 12.2.0",
    "cxx_standard": 17,
    "platform": "linux-x86_64",
    "git_commit": "unknown",
    "source_date": "unknown",
}

KERNELS_RECORD: dict[str, Any] = {
    "schema": 1,
    "kind": "kernels",
    "name": "cpu",
    "package": PROJECT.distribution,
    "version": PROJECT.version,
    "device": "cpu",
    "cuda": None,
    "cuda_archs": [],
    "kernel_abi": 1,
    "compiler": "g++ 12.2.0",
    "cxx_standard": 17,
    "platform": "linux-x86_64",
    "git_commit": "unknown",
    "source_date": "unknown",
}


def c_string(content: str) -> str:
    return json.dumps(content)


def shared_object(  # noqa: PLR0913 - a test sets one or two of an object's properties
    path: Path,
    *,
    record: Mapping[str, Any] | str | None = None,
    layout: Mapping[str, int] | str | None = None,
    undefined: Iterable[str] = (),
    weak: Iterable[str] = (),
    defined: Iterable[str] = (),
    libraries: Sequence[Path] = (),
    versions: str | None = None,
    flags: Iterable[str] = (),
    soname: str | None = None,
) -> Path:
    """Compile a small C object at `path` and return it."""
    lines = []
    for name, content in ((".torch_extension.record", record), (".torch_extension.layout", layout)):
        if content is not None:
            literal = content if isinstance(content, str) else json.dumps(content)
            label = name.replace(".", "_")
            lines.append(
                f'__attribute__((section("{name}"), used)) static const char {label}[] = '
                f"{c_string(literal)};"
            )
    for index, symbol in enumerate(undefined):
        lines.append(f'extern char u{index} __asm__("{symbol}"); void *pu{index} = &u{index};')
    for index, symbol in enumerate(weak):
        lines.append(
            f'extern char w{index} __asm__("{symbol}") __attribute__((weak)); '
            f"void *pw{index} = &w{index};"
        )
    for index, symbol in enumerate(defined):
        lines.append(f'int d{index}(void) __asm__("{symbol}"); int d{index}(void) {{ return 7; }}')
    options = [*flags, f"-Wl,-soname,{soname}"] if soname else [*flags]
    if libraries:
        options += ["-Wl,--no-as-needed", *map(str, libraries)]
    code = "\n".join([*lines, "int test_object;"]) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    key = (path.name, code, versions, *map(_as_input, options))
    if key in _COMPILED:
        path.write_bytes(_COMPILED[key])
        path.chmod(0o755)
    else:
        _compile(path, code, versions, options)
        _COMPILED[key] = path.read_bytes()
    return path


#: What was compiled, by what it was compiled of: the tests make most objects many times.
_COMPILED: dict[tuple[str | bytes | None, ...], bytes] = {}


def _as_input(option: str) -> str | bytes:
    """What of an option decides the result: of a file its content, and its path as well where a
    library has no name of its own, since the linker then takes that."""
    path = Path(option)
    if option.startswith("-") or not path.is_file():  # as the header of `-include`
        return option
    content = path.read_bytes()
    has_name = path.suffix == ".c" or b"\0%s\0" % path.name.encode() in content
    return content if has_name else option.encode() + b"\0" + content


def _compile(path: Path, code: str, versions: str | None, options: Sequence[str]) -> None:
    source = path.with_suffix(".c")
    source.write_text(code)
    command = ["gcc", "-shared", "-fPIC", "-w", "-o", str(path), str(source), *options]
    if versions:
        script = path.with_suffix(".map")
        script.write_text(versions)
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True, capture_output=True, text=True)


def gpu_object(
    path: Path, archs: list[tuple[int, int, int]], record: object = None, code: bytes = bytes(32)
) -> Path:
    """An object with a hand-made `.nv_fatbin`: (kind, architecture, flags) for every entry."""
    entries = b"".join(
        struct.pack("<HHIQ", kind, 0x101, 64, len(code))
        + struct.pack("<8xHHI8xQ16x", 8, 1, arch, flags)
        + code
        for kind, arch, flags in archs
    )
    blob = path.with_suffix(".bin")
    path.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries)
    source = path.with_suffix(".gpu.c")
    section = f'__asm__(".section .nv_fatbin,\\"a\\"\\n.incbin \\"{blob}\\"\\n");'
    source.write_text(f"/* {digest(blob)} */ {section}")  # another object for another content
    return shared_object(path, record=record, flags=[str(source)])  # type: ignore[arg-type]


def fake_torch(  # noqa: PLR0913 - a test sets one or two of a torch's properties
    root: Path,
    version: str = "2.13.0+cpu",
    *,
    cuda: str | None = None,
    hip: str | None = None,
    abi: int = 1,
    exports: Iterable[str] = (),
    python_tag: str | None = None,
) -> Path:
    """A folder that looks like a torch installation: version.py and two real libraries."""
    lib = root / "torch" / "lib"
    lib.mkdir(parents=True)
    (root / "torch" / "version.py").write_text(
        "from typing import Optional\n"
        f"__version__ = {version!r}\n"
        f"cuda: Optional[str] = {cuda!r}\n"
        f"hip: Optional[str] = {hip!r}\n"
    )
    shared_object(lib / "libc10.so", defined=[ERROR_NEW if abi else ERROR_OLD], soname="libc10.so")
    shared_object(lib / "libtorch_cpu.so", defined=exports, soname="libtorch_cpu.so")
    if python_tag:
        libraries = [lib / "libtorch_cpu.so", lib / "libc10.so"]
        module = root / "torch" / f"_C.{python_tag}.so"
        shared_object(module, libraries=libraries, flags=["-Wl,-rpath,$ORIGIN/lib"])
    return root / "torch"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
