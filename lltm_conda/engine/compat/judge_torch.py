"""Dimensions of torch: is it there, its version and class layout, C++ ABI, symbols, libraries."""

from __future__ import annotations

from collections.abc import Sequence

from . import faults, fixes, support
from .binary import is_torch_library, is_torch_symbol
from .fixes import ours
from .layouts import FATAL_TO_REGISTER, LAYOUTS, difference, minors_with
from .records import BinaryRecord, BuildRecord, Finding, Runtime, TorchInstall, dotted
from .text import printable, some


def _whole_torch(binary: BinaryRecord, runtime: Runtime) -> TorchInstall | None:
    """The torch that the binary would be loaded beside; None if there is nothing to compare."""
    torch = runtime.torch
    wanted = binary.kind in ("glue", "extension")
    return torch if wanted and torch is not None and not torch.problems else None


def installed_torch(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    torch, environment = runtime.torch, runtime.environment
    if binary.kind not in ("glue", "extension"):
        return None
    if torch is None:
        problem, needed = runtime.torch_problem, "an installed torch"
        why = f"torch cannot be used: {problem}" if problem else "torch is not installed"
        named = [minor for minor, _ in binary.owner.built_for] if binary.owner else []
        observed, minor = problem or "not installed", next(iter(named), None)
        fix = fixes.install_torch(environment, runtime.project, minor)
    elif torch.problems:
        observed, needed = "; ".join(torch.problems), "a whole torch installation"
        why = f"the torch installation is damaged: {torch.problems[0]}"
        fix = fixes.reinstall_torch(environment, torch)
    elif torch.python_tags and not any(
        f"{tag}-".startswith(runtime.python_tag) for tag in torch.python_tags
    ):
        observed = f"torch for {', '.join(torch.python_tags)}"
        needed, why = runtime.python_tag.rstrip("-"), "this torch was built for another Python"
        fix = fixes.reinstall_torch(environment, torch)
    elif (torch.hip or torch.xpu) and ours(binary, runtime):
        name, observed = torch.device.partition(" ")[0], f"{torch.version} ({torch.device})"
        definition = runtime.project.definition.rpartition(".")[0]
        why = f"CPU tensors are served, {name} tensors are not"
        why += f": use {definition} for those" if definition else ""
        return Finding.note("torch", observed, "a CPU or CUDA build of torch", why)
    else:
        return Finding.ok("torch", torch.version, "an installed torch")
    return Finding.rejected("torch", observed, needed, why, fix, faults.TORCH_NOT_LOADED)


def torch_version(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    torch, record = _whole_torch(binary, runtime), binary.record
    if torch is None or record is None:
        return None  # `vouched`, the last dimension, judges binaries without a record
    dimension, version = "torch version", torch.version
    newest = support.load(runtime.project.folder).torch_max
    if record.lane != "stable":
        return _aten_version(binary, record, torch, runtime)
    target = record.torch_target or (2, 10)
    needed = f"torch >= {dotted(target)}"
    if torch.version_tuple < target:
        why = (
            f"{binary.name} uses the stable ABI of torch {dotted(target)}, torch {version} is older"
        )
        fix, fault = fixes.fit_torch(runtime, binary), faults.TORCH_VERSION
        return Finding.rejected(dimension, version, needed, why, fix, fault)
    if torch.version_tuple > newest:
        why = (
            f"newer than {dotted(newest)}, the newest that was tested: the stable ABI promises "
            "that it works"
        )
        return Finding.note(dimension, version, needed, why)
    return Finding.ok(dimension, version, needed)


def _named_differences(torch: TorchInstall, changed: Sequence[tuple[str, int, int]]) -> str:
    texts = [f"{name} {there} here {now}" for name, there, now in changed]
    return f"torch {torch.version} ({some(texts, 12)})"


def _aten_version(
    binary: BinaryRecord, record: BuildRecord, torch: TorchInstall, runtime: Runtime
) -> Finding:
    dimension, version, target = "torch version", torch.version, record.torch_target
    needed = f"torch {dotted(target)}, or one of the same layout"
    if record.torch_built == version:
        return Finding.ok(dimension, version, f"torch {version}, as built")
    observed, fault, fix = version, faults.TORCH_VERSION, fixes.fit_torch(runtime, binary)
    built = f"{binary.name} was built for torch {dotted(target)}"
    here = LAYOUTS.get(torch.version_tuple) if torch.is_release else None
    changed = difference(binary.layout or {}, here or {})
    make = Finding.rejected
    if here is None:
        why = f"{built}; the class layout of torch {version} was never measured"
        make = Finding.rejected if ours(binary, runtime) else Finding.unknown
    elif not binary.layout:
        observed, fault = "no layout fingerprint in the file", faults.PACKAGE_FILES
        why = f"{binary.name} does not say which class layout it was compiled with"
        fix = fixes.put_back(binary, runtime) if ours(binary, runtime) else fix
    elif changed:
        observed = _named_differences(torch, changed)
        why = (
            f"{built}, torch {version} lays its classes out differently: loading it would abort "
            "or compute wrongly"
        )
    elif target == torch.version_tuple:
        return Finding.ok(dimension, version, f"torch {dotted(target)}")
    else:
        more = "" if binary.layout == here else " and other scalar types at the end"
        same = f"the same class layout{more}"
        why = f"built for torch {dotted(target)}; torch {dotted(torch.version_tuple)} has {same}"
        return Finding.note(dimension, version, needed, why)
    return make(dimension, observed, needed, why, fix, fault)


def cxx_abi(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    torch = _whole_torch(binary, runtime)
    claimed = binary.record.cxx11_abi if binary.record else None
    flavour = binary.cxx11_abi if binary.cxx11_abi is not None else claimed
    if torch is None or flavour is None or binary.lane == "stable":
        return None
    make, needed = Finding.rejected, f"flavour {flavour}"
    if claimed is not None and claimed != flavour:
        observed, needed = f"symbols of {needed}", f"flavour {claimed}, as its record says"
        why = f"{binary.file} was compiled with the wrong C++ ABI flag"
        fix = fixes.rebuild(binary, runtime)
    elif torch.cxx11_abi is None:
        make, observed = Finding.unknown, "not known"
        library = printable(torch.lib_dir / "libc10.so")
        why = f"the C++ ABI flavour of {library} cannot be read"
        fix = fixes.reinstall_torch(runtime.environment, torch)
    elif torch.cxx11_abi != flavour:
        observed = f"torch {torch.version} of flavour {torch.cxx11_abi}"
        why = (
            f"{binary.name} was compiled with the C++11 ABI {needed}, this torch with "
            f"{torch.cxx11_abi}"
        )
        fix = fixes.fit_torch(runtime, binary)
    else:
        return Finding.ok("C++ ABI", f"flavour {torch.cxx11_abi}", needed)
    return make("C++ ABI", observed, needed, why, fix, faults.CXX_ABI)


def torch_symbols(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    torch = _whole_torch(binary, runtime)
    if torch is None:
        return None
    count, looked_up = len(binary.torch_symbols), runtime.missing.get(str(binary.path))
    needed = f"{count} symbols"
    missing = [name for name in looked_up or () if is_torch_symbol(name.encode())]
    if looked_up is None:
        why = f"the symbols of {binary.file} were not looked up in torch"
        return Finding.unknown("torch symbols", "not looked up", needed, why)
    if missing:
        observed = f"{len(missing)} of {count} missing: {some(missing)}"
        why = f"torch {torch.version} does not have what {binary.file} was linked against"
        fix = fixes.fit_torch(runtime, binary)
        return Finding.rejected("torch symbols", observed, needed, why, fix, faults.TORCH_VERSION)
    return Finding.ok("torch symbols", f"all {count} found", needed)


def vouched(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Whether something says for which torch an ATen extension without a record was built.

    A complete set of symbols says nothing: classes change their layout under the same names.
    """
    torch = _whole_torch(binary, runtime)
    if torch is None or binary.record is not None:
        return None
    dimension, version, here = "torch version", torch.version, torch.version_tuple
    if torch.root in binary.path.parents:
        return Finding.ok(dimension, version, "the torch that it is part of")
    if binary.lane == "stable":
        needed = "any torch that has its symbols (the stable ABI)"
        return Finding.ok(dimension, version, needed if binary.torch_symbols else "any torch")
    known, fix = LAYOUTS.get(here, {}), fixes.fit_torch(runtime, binary)
    if binary.layout:
        changed = difference(binary.layout, known)
        needed = "a torch with the class layout that it embeds"
        if known and torch.is_release and not changed:
            why = "the class layout that it embeds is that of this torch"
            return Finding.note(dimension, version, needed, why)
        why = f"{binary.file} was compiled with another class layout than torch {version} has"
        observed = _named_differences(torch, changed)
        return Finding.rejected(dimension, observed, needed, why, fix, faults.TORCH_VERSION)
    from .owner import built_for  # an import of the package does not need it

    targets = dict(reversed(built_for(binary)))  # of two sources for a minor, the first wins
    if not targets:
        fits = minors_with(binary.torch_symbols)
        if min(LAYOUTS) not in fits:  # else the binary may be older than all measured minors
            targets = dict.fromkeys(fits, "its set of symbols")
    alike = [m for m in targets if known and not difference(LAYOUTS.get(m, {}), known)]
    same = [minor for minor in targets if minor == here or minor in alike]
    if same and torch.is_release and len(same) == len(targets):
        target = here if here in same else same[0]
        needed = f"torch {dotted(target)}, says {targets[target]}"
        why = f"{targets[target]} vouches for torch {dotted(target)}"
        if target != here:
            why += f"; torch {dotted(here)} has the same class layout"
        return Finding.note(dimension, version, needed, why)
    if not targets:
        needed = "a torch that something names"
        why = (
            f"nothing says for which torch {binary.file} was built: no symbol is missing, but "
            "another class layout could still crash the process"
        )
        return Finding.unknown(dimension, version, needed, why, fix, faults.TORCH_VERSION)
    target, last = min(targets), max(targets)
    many = f"one of torch {dotted(target)} to {dotted(last)}"
    label = many if target != last else f"torch {dotted(target)}"
    built, names = f"built for {label} ({targets[target]})", binary.torch_symbols
    needed = f"{label}, or one of the same layout"
    registers = any("5torch7Library" in name or "5torch11CppFunction" in name for name in names)
    others = [{name for name, *_ in difference(LAYOUTS.get(m, {}), known)} for m in targets]
    make = Finding.unknown
    why = f"whether it works in torch {version} cannot be told from its files"
    if registers and all(FATAL_TO_REGISTER & fields for fields in others):
        make = Finding.rejected
        why = f"torch {version} has changed the classes that register operators"
    why = f"{binary.file} was {built}; {why}"
    return make(dimension, version, needed, why, fix, faults.TORCH_VERSION)


def libraries(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    missing = runtime.libraries.get(str(binary.path))
    cuda = [name for name in binary.needed if name.startswith(("libcudart", "libcublas"))]
    if missing is None:
        if cuda:
            return Finding.unknown("libraries", "not looked for", some(cuda), "not looked for")
        return None
    if not missing:
        return Finding.ok("libraries", "all found", f"{len(binary.needed)} libraries")
    torch, mine = runtime.torch, ours(binary, runtime)
    missing = tuple(sorted(missing, key=_telling))
    first, order = missing[0][:200], _telling(missing[0])
    kind = torch.device if torch else ""
    if order == _GPU_TORCH:
        fault = faults.CPU_TORCH_SWAPPED_IN
        device = next((name for name in ("hip", "xpu") if name in first), "cuda").upper()
        major = cuda_major(missing) if device == "CUDA" else ""
        label = f"{device} {major}".strip()
        why = f"{binary.file} needs a {label} build of torch, and this one is built for {kind}"
        fix = fixes.same_cuda(binary, runtime, major)
        fix = fixes.cuda_torch(runtime.environment, torch) if mine else fix
    elif order == _DRIVER:
        fault = faults.DRIVER
        why = f"{first} is part of the NVIDIA driver, and no driver is installed here"
        fix = "install the NVIDIA driver; on a machine without an NVIDIA GPU this cannot be used"
    elif order == _CUDA:
        fault = faults.CUDA_MAJOR
        have = f"torch is built for {kind}" if torch else "there is no torch"
        why = f"{binary.file} needs {first}, which is not here ({have})"
        fix = fixes.same_cuda(binary, runtime, cuda_major(missing))
        fix = fixes.fit_torch(runtime) if mine else fix
    elif order == _OTHER_TORCH:
        fault = faults.TORCH_NOT_LOADED
        why = f"{first} is a library of torch that is not here"
        fix = fixes.install_torch(runtime.environment, runtime.project)
        if torch is not None:
            why = f"torch {torch.version} has no {first}"
            fix = fixes.rebuild(binary, runtime)
            fix = fixes.reinstall_torch(runtime.environment, torch) if mine else fix
    else:
        fault, why = faults.SYSTEM_LIBRARIES, f"{first} is nowhere on the library path"
        fix = fixes.machine_library(first, binary, runtime)
    observed = f"missing: {some(missing, 8)}"
    return Finding.rejected("libraries", observed, "all found", why, fix, fault)


#: Kinds of missing libraries, the most informative one first.
_GPU_TORCH, _OTHER_TORCH, _CUDA, _DRIVER, _ELSE = range(5)
_DRIVER_LIBRARIES = ("libcuda.so", "libnvidia-", "libnvcuvid.so", "libnvoptix.so")


def _telling(name: str) -> int:
    if is_torch_library(name):
        device = any(gpu in name for gpu in ("cuda", "hip", "xpu"))
        return _GPU_TORCH if device else _OTHER_TORCH
    if name.startswith(_DRIVER_LIBRARIES):
        return _DRIVER
    gpu = name.startswith(("libcu", "libnv", "libnccl")) and "nvinfer" not in name
    return _CUDA if gpu else _ELSE


def cuda_major(names: Sequence[str]) -> str:
    """`12` from `libcudart.so.12`; "" if no name says it."""
    runtimes = ("libcudart.so.", "libnvrtc.so.", "libcublas.so.", "libcublasLt.so.")
    found = [name for name in names if name.startswith(runtimes)]
    return found[0].partition(".so.")[2].partition(".")[0] if found else ""
