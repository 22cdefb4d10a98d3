"""Records and runtimes made by hand, to vary one field at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shared_objects import GLUE_RECORD, KERNELS_RECORD
from small_client import PROJECT

from torchship.judge import BinaryRecord, BuildRecord, Runtime, TorchInstall
from torchship.judge.linking.process import Opening
from torchship.judge.reading import layouts
from torchship.judge.reading.elf import Header
from torchship.judge.target import Target

Openings = dict[str, Opening]
#: The header of a file in which nothing is unusual.
USUAL = Header(executable_stack=False)


def make_torch(version: str = "2.13.0+cpu", **facts: object) -> TorchInstall:
    minor = tuple(int(part) for part in version.split(".")[:2])
    defaults: dict[str, Any] = {
        "version": version,
        "version_tuple": minor,
        "cuda": None,
        "hip": None,
        "cxx11_abi": 1 if minor >= (2, 7) else 0,
        "root": Path("/nowhere/torch"),
        "lib_dir": Path("/nowhere/torch/lib"),
        "include_dir": Path("/nowhere/torch/include"),
    }
    return TorchInstall(**{**defaults, **facts})


def opened(path: Path, header: Header = USUAL, **facts: object) -> Openings:
    """What the dynamic linker would do with one file, which needs no library."""
    defaults: dict[str, Any] = {
        "files": (path,),
        "new": {path: header},
        "names": {},
        "missing": (),
        "refused": (),
        "by_library_path": (),
        "forbidding": (),
        "executable_stack": False,
        "static_tls_left": 0,
        "symbols": {},
    }
    return {str(path): Opening(**{**defaults, **facts})}


def make_runtime(torch: TorchInstall | None = None, **facts: object) -> Runtime:
    defaults: dict[str, Any] = {
        "system": "linux",
        "machine": "x86_64",
        "python": (3, 11, 7),
        "target": Target(),
        "libc": ("glibc", (2, 36)),
        "libstdcxx": {"GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)},
        "torch": torch if torch is not None else make_torch(),
        "package_version": PROJECT.version,
        "project": PROJECT,
        "missing_symbols": {str(make_glue().path): (), str(make_aten().path): ()},
    }
    return Runtime(**{**defaults, **facts})


def unread(runtime: Runtime) -> Runtime:
    """The runtime as it was before anything was read with it."""
    return runtime._replace(target=Target(runtime.target.python))


def make_binary(record: dict[str, Any], **facts: object) -> BinaryRecord:
    built = BuildRecord.parse(json.dumps(record))
    kind = record["kind"]
    name = record["name"]
    defaults: dict[str, Any] = {
        "path": Path(f"/nowhere/lib/{kind}-{name}.so"),
        "kind": kind,
        "name": name,
        "record": built,
        "platform": "linux-x86_64",
        "needed": ("libtorch_cpu.so",),
        "floors": {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 21)},
        "cuda_archs": built.cuda_archs,
        "size": 100_000,
    }
    return BinaryRecord(**{**defaults, **facts})


def make_glue(**facts: object) -> BinaryRecord:
    return make_binary(GLUE_RECORD, **{"torch_symbols": ("aoti_torch_get_dim",), **facts})


def make_aten(
    minor: tuple[int, int] = (2, 8), abi: int = 1, built: str | None = None, **facts: object
) -> BinaryRecord:
    record = {
        **GLUE_RECORD,
        "name": f"aten{minor[0]}{minor[1]}-abi{abi}",
        "lane": "aten",
        "torch_target": f"{minor[0]}.{minor[1]}",
        "torch_built": built or f"{minor[0]}.{minor[1]}.0",
        "cxx11_abi": abi,
    }
    defaults = {"layout": layouts.LAYOUTS.get(minor), "cxx11_abi": abi}
    return make_binary(record, **{**defaults, **facts})


def make_cuda(
    cuda: str = "13.0", archs: tuple[str, ...] = ("sm_90", "compute_90"), **facts: object
) -> BinaryRecord:
    record = {
        **KERNELS_RECORD,
        "name": f"cuda{cuda.partition('.')[0]}",
        "device": "cuda",
        "cuda": cuda,
        "cuda_archs": list(archs),
    }
    return make_binary(record, **{"needed": ("libc.so.6",), **facts})
