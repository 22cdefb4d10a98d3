"""The libraries and symbols that the dynamic linker would not find."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from ..project import Record
from ..reading.binary import is_torch_library
from ..records import BinaryRecord, TorchInstall
from ..target import Target, once
from ..text import list_names, read_regular
from .process import BroughtIn, Opening, Process
from .search import Settings, head_of, settings_here

#: `import torch` loads this into the global scope, with the libraries of CUDA.
_GLOBAL_DEPS = "libtorch_global_deps.so"
#: What stands for the module torch._C in a folder that holds only libraries.
_LIBRARIES_OF_TORCH = ("libc10.so", "libtorch_cpu.so", "libtorch_python.so")
#: The calls and the table in torch's __init__.py that name the libraries to load beforehand.
_PRELOAD_CALL = r'\("(\w+)", "(lib\w+(?:-\w+)?\.so\.\*\[0-9\])"'
_PRELOAD_ENTRY = r'"(\w+)": "(lib\w+(?:-\w+)?\.so\.\*\[0-9\])"'

_exists = os.path.exists


class Links(Record, kw_only=True):
    """What the dynamic linker would find and miss for one object."""

    #: Without the symbols that the package's own libraries lack: their own verdicts name these.
    opening: Opening
    #: The libraries of its package that load with it, and need torch.
    package_libraries: list[Path]
    libstdcxx: Path | None = None  #: the libstdc++ that the object would use


class TorchImport(Record, kw_only=True):
    """A process that has imported torch, or has tried to."""

    process: Process
    failure: Opening | None = None  #: what `import torch` could not load


def link(
    target: Target,
    binary: BinaryRecord,
    torch: TorchInstall | None,
    *,
    opened: Path | None = None,
    program: Path | None = None,
) -> Links:
    """Look up what the dynamic linker would look up to load a binary after `import torch`.

    `torch` is None if only Python's own libraries are loaded. The package of the binary may
    load its other libraries first. `opened` is the object that needs `binary`, or None; its
    libraries may provide symbols. `program` is the interpreter, by default the target's.
    Raises BudgetSpentError.
    """
    settings = settings_here()
    root = torch.root if torch else None
    imported = import_torch(target, root, settings, program or target.program())
    process = imported.process
    libraries = binary.owner.libraries if binary.owner else {}
    scope = process.open(opened, libraries).files if opened is not None else ()
    opening = process.open(binary.path, libraries)
    opening = process.bind(opening, scope)
    package_libraries = [
        path
        for path in opening.files[1:]
        if _is_among(path, libraries) and any(map(is_torch_library, head_of(target, path).needed))
    ]
    brought_in = None
    if not opening.succeeds:
        for variable, changed in without_variables(settings).items():
            without = import_torch(target, root, changed, program or target.program()).process
            again = without.bind(without.open(binary.path, libraries), scope)
            if again.succeeds:
                brought_in = _brought_in(variable, imported, opening)
                break
    symbols = {
        path: names for path, names in opening.symbols.items() if path not in package_libraries
    }
    return Links(
        opening=opening._replace(symbols=symbols, brought_in=brought_in),
        package_libraries=package_libraries,
        libstdcxx=process.names.get("libstdc++.so.6") or opening.names.get("libstdc++.so.6"),
    )


def without_variables(settings: Settings) -> dict[str, Settings]:
    """The settings without each variable that can change what is loaded, by the variable."""
    changed: dict[str, Settings] = {}
    if settings.library_path:
        changed["LD_LIBRARY_PATH"] = settings._replace(library_path=())
    if settings.preloads:
        changed["LD_PRELOAD"] = settings._replace(preloads=())
    return changed


def _brought_in(variable: str, imported: TorchImport, opening: Opening) -> BroughtIn | None:
    openings = [opening] if imported.failure is None else [opening, imported.failure]
    if variable == "LD_PRELOAD":
        files = [*imported.process.preloaded]
    else:
        # A file that the linker found there and refused was not brought in.
        files = [refusal.path for one in openings for refusal in one.refused]
        files += [path for one in openings for path in one.by_library_path]
        files += imported.process.by_library_path
    return BroughtIn(file=files[0], variable=variable) if files else None


def _is_among(path: Path, libraries: Mapping[str, Path]) -> bool:
    """Whether a file, or the target of a link, is one of a package's libraries."""
    target = path.resolve()
    named_alike = (libraries.get(name) for name in {path.name, target.name})
    return any(library is not None and library.resolve() == target for library in named_alike)


def missing_libraries(
    target: Target, binary: BinaryRecord, torch: TorchInstall | None
) -> tuple[str, ...]:
    """The libraries that the binary needs, directly or not, and that the linker would not find.

    Raises BudgetSpentError.
    """
    root = torch.root if torch else None
    process = import_torch(target, root, settings_here(), target.program(), binds=False).process
    return process.open(binary.path).missing


@once
def import_torch(
    target: Target, root: Path | None, settings: Settings, program: Path, *, binds: bool = True
) -> TorchImport:
    """A process of this program after `import torch` of the package folder `root`, or before it
    if that is None. With `binds`, the symbols of torch's own libraries are looked up, too."""
    process = Process(target, program, settings)
    if root is None:
        return TorchImport(process=process)
    failure = None
    if not settings.shares_torch:  # else torch loads only its module
        failure = _load_global_deps(process, root)
    for path in modules_of_torch(root):
        opening = process.open(path)
        if binds:
            opening = process.bind(opening)
        if path.parent == root and not opening.succeeds:
            failure = failure or opening
        process.keep(opening, is_global=settings.shares_torch)
    return TorchImport(process=process, failure=failure)


def _load_global_deps(process: Process, root: Path) -> Opening | None:
    """Load what torch loads into the global scope; what could not be loaded, or None."""
    global_deps = root / "lib" / _GLOBAL_DEPS
    failure = None
    if _exists(global_deps):
        opening = process.bind(process.open(global_deps))
        if not opening.succeeds:
            failure = _keep_preloaded(process, root, after_failure=True)
            opening = process.bind(process.open(global_deps))
        failure = failure or (None if opening.succeeds else opening)
        process.keep(opening, is_global=True)
    _keep_preloaded(process, root)
    return failure


def _keep_preloaded(process: Process, root: Path, *, after_failure: bool = False) -> Opening | None:
    """Load the libraries of NVIDIA's wheels that `import torch` loads, up to the first missing
    one; returns the first that does not load, or None."""
    for path in _preloaded(process.target, root, after_failure=after_failure):
        opening = process.bind(process.open(path))
        if not opening.succeeds:
            return opening
        process.keep(opening, is_global=False)
    return None


def _preloaded(target: Target, root: Path, *, after_failure: bool) -> Iterator[Path]:
    source = ""
    with suppress(OSError):
        if _exists(root / "lib" / "libtorch_cuda.so"):
            source = read_regular(root / "__init__.py", budget=target.budget).decode(
                "utf-8", "replace"
            )
    if after_failure:
        libraries = re.findall(_PRELOAD_CALL, source) + re.findall(_PRELOAD_ENTRY, source)
    else:
        # Drop the `except` block, which repeats these libraries and runs only after a failure.
        start = source.find("def _load_global_deps")
        libraries = re.findall(_PRELOAD_CALL, source[: source.find("except OSError as err", start)])
    for folder, name in libraries:
        path = next(_on_path(target, root, folder, name), None)
        if path is None:
            return
        yield path


def _on_path(target: Target, root: Path, folder: str, name: str) -> Iterator[Path]:
    """The libraries of NVIDIA's wheels of a name, in the order in which torch seeks them: in each
    entry of `sys.path`, which holds the folder of a torch that is imported."""
    entries = [Path(entry) for entry in target.search_path() if entry]
    if root.parent not in entries:
        entries.insert(0, root.parent)
    for entry in entries:
        for place in (f"nvidia/{folder}", "nvidia/cu[0-9]*", folder):
            yield from sorted(entry.glob(f"{place}/lib/{name}"))


def modules_of_torch(root: Path) -> list[Path]:
    """The module torch._C of this Python, or of another one; else the libraries that it needs."""
    modules = [root / f"_C{suffix}" for suffix in EXTENSION_SUFFIXES]
    modules += [root / name for name in list_names(root) if re.fullmatch(r"_C\..*\.so", name)]
    existing = [path for path in modules if _exists(path)]
    libraries = [root / "lib" / name for name in _LIBRARIES_OF_TORCH]
    return existing[:1] or [path for path in libraries if _exists(path)]
