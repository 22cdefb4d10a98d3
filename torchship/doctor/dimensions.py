"""The dimensions of a verdict, with a function (binary, runtime) -> finding for each.

A function returns None if its dimension does not apply; `whole_file` yields up to four findings.
Functions for the object and the host come first, then those for torch, then those for CUDA.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from . import faults, fixes, support
from .binary import is_torch_library, is_torch_symbol
from .fixes import ours
from .layouts import FATAL_TO_REGISTER, LAYOUTS, difference, minors_with
from .records import (
    NOTE,
    NOWHERE,
    OK,
    REJECTED,
    UNKNOWN,
    BinaryRecord,
    Driver,
    Finding,
    Runtime,
    TorchInstall,
    dotted,
    parse_version,
)
from .text import printable, some

_OF_PYTHON = ("Py", "_Py", "import ")


def whole_file(binary: BinaryRecord, runtime: Runtime) -> Iterator[Finding]:
    """Is the file whole and from this version of the package, and do kernels fit the glue?"""
    file, needed, fault = binary.file, "a whole shared object", faults.PACKAGE_FILES
    if binary.kind == "unreadable" or binary.problems:
        why = f"{file} is damaged or not what its name says: {binary.problems[0]}"
        fix, observed = fixes.put_back(binary, runtime), "; ".join(binary.problems)
        if observed == "Permission denied":
            why, fix = f"{file} is not readable by this user", f"chmod a+r {binary.path}"
        yield Finding("file", REJECTED, observed, needed, why, fix, fault)
        return
    yield Finding("file", OK, f"{binary.size} bytes", needed)
    record, version, table = binary.record, runtime.package_version, runtime.kernel_abi
    if record is None or not version:
        return
    other, old = f"{file} belongs to {record.package}", f"{file} is left over from version "
    compared: list[tuple[str, object, object, str]] = [
        ("package", record.package, runtime.project.distribution, other),
        ("package version", record.version, version, old + record.version),
    ]
    if record.kind == "kernels" and table is not None:
        why = f"{file} comes from another build than the glue"
        compared.append(("kernel table", record.kernel_abi, table, why))
    for dimension, has, expected, why in compared:
        sides = f"{dimension} {has}", f"{dimension} {expected}"
        if has != expected:
            yield Finding(dimension, REJECTED, *sides, why, fixes.reinstall(runtime), fault)
            return
        yield Finding(dimension, OK, *sides)


def platform(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    here, built = runtime.platform, binary.platform or support.FIRST
    musl = any(name.startswith("libc.musl") for name in binary.needed)
    if here == built and not (musl and runtime.libc is not None and runtime.libc[0] == "glibc"):
        return Finding("platform", OK, here, built)
    why, fix = f"{binary.file} was built for {built}, but this is {here}", ""
    if here == built:
        here, built = f"{here}, glibc", f"{built}, musl"
        why = f"{binary.file} was built for musl (Alpine), but this system has glibc"
    elif ours(binary, runtime):
        project, known = runtime.project, support.load(runtime.project.folder).platforms
        wheel = f"{project.distribution}-{project.version}-py3-none-manylinux_*_{runtime.machine}"
        fix = fixes.reinstall(runtime, f"install {wheel}.whl, or: {fixes.build(project)}")
        if here not in known:
            why = f"there is no binary for {here}; binaries are built for {' and '.join(known)}"
            fix = fixes.without_binaries(project)
    return Finding("platform", REJECTED, here, built, why, fix or fixes.put_back(binary, runtime))


def pages(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Are the segments aligned to pages? Pages of Linux on aarch64 have 4, 16 or 64 kB."""
    have, page = binary.alignment, runtime.page_size
    if not have or not page or binary.platform != runtime.platform:
        return None
    observed, needed = f"pages of {page} bytes", f"pages of at most {have} bytes"
    if have % page == 0:
        return Finding("page size", OK, observed, needed)
    why = f"{binary.file} was linked for pages of {have} bytes, but this kernel has {page}"
    fix = fixes.rebuild(binary, runtime)
    if ours(binary, runtime):
        fix = f"LDFLAGS=-Wl,-z,max-page-size={page} {fix}"
    return Finding("page size", REJECTED, observed, needed, why, fix, faults.SYSTEM_LIBRARIES)


def python(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    build = " free-threaded" if runtime.free_threaded else ""
    here = f"{runtime.implementation} {dotted(runtime.python)}{build}"
    mine, floor = ours(binary, runtime), support.load(runtime.project.folder).python_min
    missing = runtime.missing.get(str(binary.path), ())
    absent = [name for name in missing if name.startswith(_OF_PYTHON)]
    if binary.modules and not mine:
        tag = _module_tag(binary, runtime, here)
        if tag.status == REJECTED or not absent:
            return tag
    if absent and absent[0].startswith("import "):
        package = absent[0].partition(" ")[2]
        why = f"{binary.file} imports {package}, which was not found"
        fix = fixes.install(runtime.environment, package, package)
        return Finding("python", UNKNOWN, f"no {package} was found", package, why, fix)
    if absent and not mine:
        why = f"{binary.file} was built for another Python: this one has no {absent[0]}"
        fix = fixes.put_back(binary, runtime)
        return Finding("python", REJECTED, here, some(absent), why, fix, faults.PACKAGE_FILES)
    if mine and runtime.python[:2] < floor:
        why = f"Python {dotted(runtime.python[:2])} is older than the oldest that is supported"
        fix = f"create an environment with Python {dotted(floor)} or newer"
        return Finding("python", REJECTED, here, f"Python >= {dotted(floor)}", why, fix)
    return Finding("python", OK, here, "any Python (no Python symbol is used)")


def _module_tag(binary: BinaryRecord, runtime: Runtime, here: str) -> Finding:
    """Does this Python import a file with such a name as `x.cpython-311-*.so` or `x.abi3.so`?"""
    _, _, tag = binary.file.removesuffix(".so").partition(".")
    if tag == "abi3" and runtime.free_threaded:
        needed, fault = "a Python with the global interpreter lock (abi3)", faults.REGISTERED_TWICE
        why = "a limited-API module does not load in a free-threaded Python"
    elif tag.startswith("cpython-") and not f"{tag}-".startswith(runtime.python_tag):
        needed, fault = tag, faults.PACKAGE_FILES
        why = f"this Python does not find {binary.file}, built for another (ModuleNotFoundError)"
    else:
        said = {"abi3": "any CPython 3 (abi3)", "": "not said by the file's name"}.get(tag, tag)
        return Finding("python", OK, here, said) if tag else Finding("python", NOTE, here, said, "")
    return Finding("python", REJECTED, here, needed, why, fixes.put_back(binary, runtime), fault)


def symbols(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Are there missing symbols that neither torch nor Python should define?"""
    missing = runtime.missing.get(str(binary.path), ())
    others = [name for name in missing if not name.startswith(_OF_PYTHON)]
    absent = [name for name in others if not is_torch_symbol(name.encode())]
    if not absent:
        return None
    observed = f"{len(absent)} missing: {some(absent)}"
    why = f"no library that {binary.file} needs defines {absent[0][:200]}"
    fix, fault = fixes.rebuild(binary, runtime), faults.SYSTEM_LIBRARIES
    return Finding("symbols", REJECTED, observed, "all found", why, fix, fault)


def system_library(family: str, binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Is glibc or libstdc++ new enough? `family` is `GLIBC`, `GLIBCXX` or `CXXABI`."""
    version = binary.floors.get(family)
    if version is None or (family == "GLIBC" and runtime.libc is None):
        return None  # `platform` rejects a binary of another platform
    needed, dimension = f"{family}_{dotted(version)}", "libstdc++"
    have = (runtime.libstdcxx or {}).get(family)
    observed = f"{family}_{dotted(have)}" if have else "not known"
    if family == "GLIBC" and runtime.libc is not None:
        dimension, name = "glibc", runtime.libc[0]
        have = runtime.libc[1] if name == "glibc" else None
        observed = f"{name} {dotted(have) if have else ''}".strip()
    if have is not None and have >= version:
        return Finding(dimension, OK, observed, needed)
    if have is None and family != "GLIBC":
        why = "no libstdc++ could be read; if it is too old, the dynamic linker says so"
        return Finding(dimension, NOTE, observed, needed, why)
    why = f"{binary.file} needs a newer {dimension} than this system has"
    fix, fault = fixes.compile_here(binary, runtime), faults.SYSTEM_LIBRARIES
    if dimension == "libstdc++" and runtime.environment.kind == "conda":
        fix = "conda install -c conda-forge libstdcxx-ng"
    return Finding(dimension, REJECTED, observed, needed, why, fix, fault)


def registration(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    if binary.kind != "glue" or runtime.registered_by is None:
        return None
    other, project = printable(runtime.registered_by), runtime.project
    observed, needed = f"already registered by {other}", f"{project.operators} registered once"
    why = f"another copy of {project.distribution} is loaded in this process"
    conda = runtime.environment.kind == "conda"
    remove = "conda remove --force" if conda else f"{runtime.environment.python} -m pip uninstall"
    fix = f"{remove} {project.distribution}   (the other copy: {other}); then restart Python"
    return Finding("op registration", REJECTED, observed, needed, why, fix, faults.REGISTERED_TWICE)


def _whole_torch(binary: BinaryRecord, runtime: Runtime) -> TorchInstall | None:
    """The torch, if it is undamaged and the binary is a glue or an extension; else None."""
    torch = runtime.torch
    needs = binary.kind in ("glue", "extension")
    return torch if needs and torch is not None and not torch.problems else None


def installed_torch(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    torch, environment = runtime.torch, runtime.environment
    if binary.kind not in ("glue", "extension"):
        return None
    tags = [f"{tag}-" for tag in torch.python_tags] if torch else []
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
    elif tags and not any(tag.startswith(runtime.python_tag) for tag in tags):
        observed = f"torch for {', '.join(torch.python_tags)}"
        needed, why = runtime.python_tag.rstrip("-"), "this torch was built for another Python"
        fix = fixes.reinstall_torch(environment, torch)
    elif (torch.hip or torch.xpu) and ours(binary, runtime):
        name, observed = torch.device.partition(" ")[0], f"{torch.version} ({torch.device})"
        definition = runtime.project.definition.rpartition(".")[0]
        why = f"CPU tensors are served, {name} tensors are not"
        why += f": use {definition} for {name} tensors" if definition else ""
        return Finding("torch", NOTE, observed, "a CPU or CUDA build of torch", why)
    else:
        return Finding("torch", OK, torch.version, "an installed torch")
    return Finding("torch", REJECTED, observed, needed, why, fix, faults.TORCH_NOT_LOADED)


def torch_version(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    torch, record = _whole_torch(binary, runtime), binary.record
    if torch is not None and binary.lane != "stable" and (record or binary.layout):
        return _layout(binary, torch, runtime)
    if torch is None or record is None:
        return None  # `vouched` judges an extension without a record
    dimension, version = "torch version", torch.version
    newest = support.load(runtime.project.folder).torch_max
    target = record.torch_target or (2, 10)
    needed = f"torch >= {dotted(target)}"
    if torch.version_tuple < target:
        why = f"{binary.name} needs the stable ABI of torch {dotted(target)} or newer"
        fix, fault = fixes.fit_torch(runtime, binary), faults.TORCH_VERSION
        return Finding(dimension, REJECTED, version, needed, why, fix, fault)
    if torch.version_tuple > newest:
        why = f"torch {dotted(newest)} is the newest tested; the stable ABI serves newer ones, too"
        return Finding(dimension, NOTE, version, needed, why)
    return Finding(dimension, OK, version, needed)


def _layout(binary: BinaryRecord, torch: TorchInstall, runtime: Runtime) -> Finding:
    """Compares the class layout that is recorded in the binary with the layout of this torch."""
    dimension, version, record = "torch version", torch.version, binary.record
    target = record.torch_target if record else None
    label = f"torch {dotted(target)}" if target else "a torch that it does not name"
    needed, built = f"{label}, or one of the same layout", f"{binary.name} was built for {label}"
    if record and record.torch_built == version:
        return Finding(dimension, OK, version, f"torch {version}, as built")
    observed, fault, fix = version, faults.TORCH_VERSION, fixes.fit_torch(runtime, binary)
    here = LAYOUTS.get(torch.version_tuple) if torch.is_release else None
    changed = difference(binary.layout or {}, here or {})
    status = REJECTED
    if here is None:
        why = f"{built}; the class layout of torch {version} was never measured"
        status = REJECTED if ours(binary, runtime) else UNKNOWN
    elif not binary.layout:
        observed, fault = "no layout fingerprint in the file", faults.PACKAGE_FILES
        why = f"{binary.name} does not say which class layout it was compiled with"
        fix = fixes.put_back(binary, runtime) if ours(binary, runtime) else fix
    elif changed:
        texts = [f"{name} {there} here {now}" for name, there, now in changed]
        observed = f"torch {version} ({some(texts, 12)})"
        why = (
            f"{built}, torch {version} lays its classes out differently: loading it would abort "
            "or compute wrongly"
        )
    elif target == torch.version_tuple:
        return Finding(dimension, OK, version, label)
    else:
        more = "" if binary.layout == here else " and other scalar types at the end"
        same = f"the same class layout{more}"
        why = f"built for {label}; torch {dotted(torch.version_tuple)} has {same}"
        return Finding(dimension, NOTE, version, needed, why)
    return Finding(dimension, status, observed, needed, why, fix, fault)


def cxx_abi(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    torch = _whole_torch(binary, runtime)
    claimed = binary.record.cxx11_abi if binary.record else None
    flavour = binary.cxx11_abi if binary.cxx11_abi is not None else claimed
    if torch is None or flavour is None or binary.lane == "stable":
        return None
    status, needed = REJECTED, f"flavour {flavour}"
    if claimed is not None and claimed != flavour:
        observed, needed = f"symbols of {needed}", f"flavour {claimed}, as its record says"
        why = f"{binary.file} was compiled with the wrong C++ ABI flag"
        fix = fixes.rebuild(binary, runtime)
    elif torch.cxx11_abi is None:
        status, observed = UNKNOWN, "not known"
        library = printable(torch.lib_dir / "libc10.so")
        why = f"the C++ ABI flavour of {library} cannot be read"
        fix = fixes.reinstall_torch(runtime.environment, torch)
    elif torch.cxx11_abi != flavour:
        observed = f"torch {torch.version} of flavour {torch.cxx11_abi}"
        why = f"{binary.name} has the C++11 ABI {needed}, but this torch has {torch.cxx11_abi}"
        fix = fixes.fit_torch(runtime, binary)
    else:
        return Finding("C++ ABI", OK, f"flavour {torch.cxx11_abi}", needed)
    return Finding("C++ ABI", status, observed, needed, why, fix, faults.CXX_ABI)


def torch_symbols(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    torch = _whole_torch(binary, runtime)
    if torch is None:
        return None
    count, looked_up = len(binary.torch_symbols), runtime.missing.get(str(binary.path))
    needed = f"{count} symbols"
    missing = [name for name in looked_up or () if is_torch_symbol(name.encode())]
    if looked_up is None:
        why = f"the symbols of {binary.file} were not looked up in torch"
        return Finding("torch symbols", UNKNOWN, "not looked up", needed, why)
    if missing:
        observed = f"{len(missing)} of {count} missing: {some(missing)}"
        why = f"torch {torch.version} lacks symbols that {binary.file} needs"
        fix = fixes.fit_torch(runtime, binary)
        return Finding("torch symbols", REJECTED, observed, needed, why, fix, faults.TORCH_VERSION)
    return Finding("torch symbols", OK, f"all {count} found", needed)


def vouched(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    """Does something name the torch that an extension without a record was built for?

    For ATen, complete symbols prove nothing: classes change their layout under the same names.
    """
    torch, aten = _whole_torch(binary, runtime), binary.lane != "stable"
    if torch is None or binary.record is not None or (aten and binary.layout):
        return None
    dimension, version, here = "torch version", torch.version, torch.version_tuple
    if torch.root in binary.path.parents:
        return Finding(dimension, OK, version, "the torch that it is part of")
    if not aten:
        needed = "any torch that has its symbols (the stable ABI)"
        return Finding(dimension, OK, version, needed if binary.torch_symbols else "any torch")
    known, fix = LAYOUTS.get(here, {}), fixes.fit_torch(runtime, binary)
    from .owner import built_for  # an import of the package does not need it

    targets = dict(reversed(built_for(binary)))  # if two places name a minor, the first counts
    if not targets:
        fits = minors_with(binary.torch_symbols)
        if min(LAYOUTS) not in fits:  # otherwise, the binary may be older than all measured minors
            targets = dict.fromkeys(fits, "its set of symbols")
    alike = [m for m in targets if known and not difference(LAYOUTS.get(m, {}), known)]
    same = [minor for minor in targets if minor == here or minor in alike]
    if same and torch.is_release and len(same) == len(targets):
        target = here if here in same else same[0]
        needed = f"torch {dotted(target)} ({targets[target]})"
        why = f"{targets[target]} vouches for torch {dotted(target)}"
        if target != here:
            why += f"; torch {dotted(here)} has the same class layout"
        return Finding(dimension, NOTE, version, needed, why)
    if not targets:
        needed = "a torch that the file or its package names"
        risk = "another class layout could crash the process"
        why = f"nothing says for which torch {binary.file} was built, and {risk}"
        return Finding(dimension, UNKNOWN, version, needed, why, fix, faults.TORCH_VERSION)
    target, last = min(targets), max(targets)
    many = f"one of torch {dotted(target)} to {dotted(last)}"
    label = many if target != last else f"torch {dotted(target)}"
    built, names = f"built for {label} ({targets[target]})", binary.torch_symbols
    needed = f"{label}, or one of the same layout"
    registers = any("5torch7Library" in name or "5torch11CppFunction" in name for name in names)
    others = [{name for name, *_ in difference(LAYOUTS.get(m, {}), known)} for m in targets]
    status = UNKNOWN
    why = f"whether it works in torch {version} cannot be told from its files"
    if registers and all(FATAL_TO_REGISTER & fields for fields in others):
        status = REJECTED
        why = f"torch {version} has changed the classes that register operators"
    why = f"{binary.file} was {built}; {why}"
    return Finding(dimension, status, version, needed, why, fix, faults.TORCH_VERSION)


def libraries(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    missing = runtime.libraries.get(str(binary.path))
    cuda = [name for name in binary.needed if name.startswith(("libcudart", "libcublas"))]
    if missing is None:
        unknown = Finding("libraries", UNKNOWN, "not looked for", some(cuda), "not looked for")
        return unknown if cuda else None
    if not missing:
        return Finding("libraries", OK, "all found", f"{len(binary.needed)} libraries")
    torch, mine = runtime.torch, ours(binary, runtime)
    missing = tuple(sorted(missing, key=lambda name: _TELLING.index(_fault_of_missing(name))))
    first, fault = missing[0][:200], _fault_of_missing(missing[0])
    kind, major = torch.device if torch else "", cuda_major(missing)
    if fault is faults.CPU_TORCH_SWAPPED_IN:
        device = next((name for name in ("hip", "xpu") if name in first), "cuda").upper()
        major = major if device == "CUDA" else ""
        label = f"{device} {major}".strip()
        why = f"{binary.file} needs a {label} build of torch, and this one is built for {kind}"
        fix = fixes.same_cuda(binary, runtime, major)
        fix = fixes.cuda_torch(runtime.environment, torch) if mine else fix
    elif fault is faults.DRIVER:
        why = f"{first} is part of the NVIDIA driver, and no driver is installed here"
        fix = "install the NVIDIA driver; on a machine without an NVIDIA GPU this cannot be used"
    elif fault is faults.CUDA_MAJOR:
        have = f"torch is built for {kind}" if torch else "there is no torch"
        why = f"{binary.file} needs {first}, which is not here ({have})"
        fix = fixes.fit_torch(runtime) if mine else fixes.same_cuda(binary, runtime, major)
    elif fault is faults.TORCH_NOT_LOADED:
        why = f"{first} is a library of torch that is not here"
        fix = fixes.install_torch(runtime.environment, runtime.project)
        if torch is not None:
            why, fix = f"torch {torch.version} has no {first}", fixes.rebuild(binary, runtime)
            fix = fixes.reinstall_torch(runtime.environment, torch) if mine else fix
    else:
        why = f"{first} is nowhere on the library path"
        fix = fixes.machine_library(first, binary, runtime)
    observed = f"missing: {some(missing, 8)}"
    return Finding("libraries", REJECTED, observed, "all found", why, fix, fault)


#: The faults that a missing library can show. The first that applies is the cause.
_TELLING = (
    faults.CPU_TORCH_SWAPPED_IN,
    faults.TORCH_NOT_LOADED,
    faults.CUDA_MAJOR,
    faults.DRIVER,
    faults.SYSTEM_LIBRARIES,
)


def _fault_of_missing(library: str) -> faults.Fault:
    if is_torch_library(library):
        device = any(gpu in library for gpu in ("cuda", "hip", "xpu"))
        return faults.CPU_TORCH_SWAPPED_IN if device else faults.TORCH_NOT_LOADED
    if library.startswith(("libcuda.so", "libnvidia-", "libnvcuvid.so", "libnvoptix.so")):
        return faults.DRIVER
    gpu = library.startswith(("libcu", "libnv", "libnccl")) and "nvinfer" not in library
    return faults.CUDA_MAJOR if gpu else faults.SYSTEM_LIBRARIES


def cuda_major(names: Sequence[str]) -> str:
    """`12` from `libcudart.so.12`; "" if no name holds the major."""
    runtimes = ("libcudart.so.", "libnvrtc.so.", "libcublas.so.", "libcublasLt.so.")
    found = [name for name in names if name.startswith(runtimes)]
    return found[0].partition(".so.")[2].partition(".")[0] if found else ""


#: First driver branches of CUDA 11.0 and 12.0 to 13.0, newest first, for drivers that tell no CUDA.
_DRIVER_CUDA = {580: (13, 0), 575: (12, 9), 570: (12, 8), 565: (12, 7), 560: (12, 6), 555: (12, 5)}
_DRIVER_CUDA |= {550: (12, 4), 545: (12, 3), 535: (12, 2), 530: (12, 1), 525: (12, 0), 450: (11, 0)}


def cuda_build(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    torch, cuda = runtime.torch, parse_version(binary.record.cuda if binary.record else None)
    if torch is None or cuda is None:
        return None
    dimension, major = "CUDA build of torch", cuda[0]
    if torch.root == NOWHERE:
        why = f"torch {torch.version} is a release, whose builds are for the CPU or one CUDA each"
        return Finding(dimension, UNKNOWN, "not known", f"a build for CUDA {major}", why)
    if torch.cuda is None:
        kind = "ROCm" if torch.hip else "XPU" if torch.xpu else "CPU-only"
        observed, needed = f"torch {torch.version} ({kind})", "a CUDA build of torch"
        why = f"torch is a {kind} build, without CUDA tensors; it may have replaced a CUDA build"
        fix = fixes.cuda_torch(runtime.environment, torch)
        swapped = faults.CPU_TORCH_SWAPPED_IN
        return Finding(dimension, REJECTED, observed, needed, why, fix, swapped)
    if torch.cuda_major is not None and torch.cuda_major >= major:
        return Finding(dimension, OK, f"CUDA {torch.cuda}", f"CUDA {major} or newer")
    speaks, needed = driver_cuda(runtime.driver), f"a driver for CUDA {major}"
    observed, fault = f"CUDA {torch.cuda}, driver for CUDA {dotted(speaks)}", faults.CUDA_MAJOR
    if not runtime.gpu_probed:
        why = "the driver was not looked at"
        return Finding(dimension, UNKNOWN, observed, needed, why, "", fault)
    if speaks is not None and speaks[0] >= major:
        why = f"torch is built for an older CUDA, but the driver serves CUDA {major}"
        return Finding(dimension, NOTE, observed, needed, why)
    why = (
        f"the kernels need CUDA {major}; torch has CUDA {torch.cuda}, and no driver serves {major}"
    )
    fix = fixes.fit_torch(runtime, binary)
    return Finding(dimension, REJECTED, observed, needed, why, fix, fault)


def driver_cuda(driver: Driver | None) -> tuple[int, int] | None:
    """The newest CUDA that a driver serves: as it says, or from its version; None if unknown."""
    if driver is None:
        return None
    if driver.cuda is not None:
        return driver.cuda
    branch = (parse_version(driver.version) or (0,))[0]
    return next((cuda for first, cuda in _DRIVER_CUDA.items() if branch >= first), None)


def binary_cuda(binary: BinaryRecord) -> tuple[int, ...] | None:
    """The CUDA that a binary was built for; None if neither its record nor its libcudart tells."""
    recorded, start = binary.record.cuda if binary.record else None, "libcudart.so."
    linked = (name.removeprefix(start) for name in binary.needed if name.startswith(start))
    return parse_version(next(linked, None) if recorded is None else recorded)


def driver(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    cuda = binary_cuda(binary)
    if cuda is None or not runtime.gpu_probed:
        return None
    needed = f"a driver for CUDA {cuda[0]} ({fixes.DRIVER_FLOORS.get(cuda[0], 'any')} or newer)"
    if runtime.driver is None:
        why = "no GPU can be used here; the CPU can"
        return Finding("driver", NOTE, "no NVIDIA driver", needed, why)
    speaks = driver_cuda(runtime.driver)
    observed = f"{runtime.driver.version or 'unknown version'} (CUDA {dotted(speaks)})"
    observed += f", L4T {runtime.l4t} of a Jetson" if runtime.l4t else ""
    if speaks is None:
        return Finding("driver", UNKNOWN, observed, needed, "which CUDA it serves is not known")
    if speaks[0] >= cuda[0]:
        return Finding("driver", OK, observed, needed)
    why = f"the NVIDIA driver serves CUDA {dotted(speaks)}, the kernels are CUDA {cuda[0]}"
    fix = fixes.newer_driver(cuda, binary, runtime)
    return Finding("driver", REJECTED, observed, needed, why, fix, faults.DRIVER)


def runs_on(archs: tuple[str, ...], capability: tuple[int, int]) -> str | None:
    """ "code" if machine code of these architectures runs on the GPU, "ptx" if PTX alone does, None
    if nothing does.

    Machine code runs on GPUs of the same major, from its minor on, also with the suffix `f`
    (`sm_100f`); with the suffix `a`, it runs on its own architecture alone (`sm_90a` on 9.0). PTX
    of `compute_N` runs on N and everything later, unless a suffix limits it like machine code.
    """
    best = None
    for arch in archs:
        named = re.fullmatch(r"(sm|compute)_(\d{1,3})(\d)([af]?)", arch)
        if named is None:
            continue
        kind, letter, own = named[1], named[4], (int(named[2]), int(named[3]))
        if letter == "a":
            fits = own == capability
        elif kind == "compute" and not letter:
            fits = own <= capability
        else:
            fits = own[0] == capability[0] and own[1] <= capability[1]
        if fits and kind == "sm":
            return "code"
        best = "ptx" if fits else best
    return best


def gpu_architecture(binary: BinaryRecord, runtime: Runtime) -> Finding | None:
    if not binary.cuda_archs or not runtime.devices:
        return None
    cuda, speaks = binary_cuda(binary), driver_cuda(runtime.driver)
    old_driver = cuda is not None and speaks is not None and speaks < cuda[:2]
    ways = [(device, runs_on(binary.cuda_archs, device.capability)) for device in runtime.devices]
    refused = [(d, how) for d, how in ways if how is None or (how == "ptx" and old_driver)]
    archs = ", ".join(binary.cuda_archs)
    named = some([f"{d.name} ({dotted(d.capability)})" for d in runtime.devices], 8)
    if not refused:
        return Finding("GPU architecture", OK, named, archs)
    device, how = refused[0]
    label = f"{device.name} (compute capability {dotted(device.capability)})"
    if how == "ptx":
        fault, fix = faults.DRIVER, fixes.newer_driver(cuda, binary, runtime)
        sides = f"CUDA {dotted(cuda)}, but the driver serves CUDA {dotted(speaks)}"
        why = f"the {label} could run only PTX of {binary.name}, which needs {sides}"
    else:
        fix = fixes.build_cuda(binary, runtime, [d.capability for d, _ in refused])
        fault, why = faults.GPU_ARCHITECTURE, f"{binary.name} holds no code for the {label}"
    found = Finding("GPU architecture", REJECTED, named, archs, why, fix, fault)
    return found if len(refused) == len(ways) else found._replace(status=NOTE)


#: The cheap dimensions come first. The first rejection is the cause.
ALL: tuple[Callable[[BinaryRecord, Runtime], Finding | None], ...] = (
    platform,
    pages,
    python,
    installed_torch,
    torch_version,
    cxx_abi,
    registration,
    *(partial(system_library, family) for family in ("CXXABI", "GLIBC", "GLIBCXX")),
    cuda_build,
    driver,
    gpu_architecture,
    torch_symbols,
    libraries,
    symbols,
    vouched,
)
