"""Packages around their binaries: what a package without any is, and what it will do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...judge import fixes
from ...judge.reading.binary import needs_torch_or_cuda, read_binary
from ...judge.records import (
    NOTE,
    NOWHERE,
    REJECTED,
    BinaryRecord,
    Finding,
    Fix,
    Runtime,
    TorchInstall,
    dotted,
    parse_version,
)
from ...judge.rules.cuda import runs_on
from ...judge.target import Target
from ...judge.text import is_file, printable, some
from ...judge.words import codes
from ..decide import CANNOT_BE_TOLD, FAILS
from ..environment.built_for import has_sdist, torch_requirements
from ..environment.families import families
from ..environment.installed import Distribution, hidden_copies
from ..environment.known_packages import CAN_DO_WITHOUT, COMPILES, FALLS_BACK, NEEDS
from ..environment.metadata import has_list, listed_names, wheel_tags
from ..environment.owner import distributions, find_owner, is_shared_object_name
from ..environment.standards import Python, admits, fits_python, normal
from ..fixes.mending import install, names_in_variable
from ..report.rows import Row, notice

_MAX_MODULES = 20
_SOURCES = (".cu", ".cuh", ".cpp", ".cc", ".c++", ".hip", ".metal")

_FIRST_TORCH_FOR_NUMPY_2 = (2, 3)
#: What is told from files even of a package that imports: it is about what it does later.
OF_LATER: frozenset[codes.Code] = frozenset(
    {
        codes.NO_FILE_FOR_CUDA,
        codes.NO_FILE_FOR_TORCH,
        codes.NUMPY_1_TORCH,
        codes.TORCH_LACKS_GPU,
    }
)


def is_of_torch(package: Distribution, python: Python) -> bool:
    """Whether a distribution requires torch, or is known to have code for it."""
    is_known = normal(package.name) in {*NEEDS, *CAN_DO_WITHOUT, *COMPILES}
    return is_known or bool(torch_requirements(package.core, python))


def files_of(target: Target, package: Distribution) -> list[str]:
    """The names in the list of files of a distribution; without one, its shared objects."""
    if has_list(package.place):
        return [*listed_names(target, package.place)]
    return [str(file) for file in distributions(target, package.site).get(package.place, [])]


def notices(
    packages: Sequence[Distribution], names: Sequence[str], rows: Sequence[Row], runtime: Runtime
) -> Iterator[Row]:
    """What is to be said of packages: of those that are named, or of all that have to do with
    torch. `rows` are the verdicts on their binaries."""
    target = runtime.target
    python = Python.of(runtime)
    chosen = {normal(name) for name in names}
    with_extensions = {normal(row.package) for row in rows if row.package}
    for package in packages:
        name = normal(package.name)
        has_to_do_with_torch = (
            is_of_torch(package, python)
            or name in with_extensions
            or _has_families(target, package)
        )
        if not (name in chosen if chosen else has_to_do_with_torch):
            continue
        finding = _about(package, rows, runtime, is_named=bool(chosen))
        if finding is not None:
            yield notice(finding, package.place, package=package.name, version=package.version)
    if not chosen:
        yield from _about_torch(packages, runtime)


def hidden_notices(
    sites: Sequence[Path],
    names: Sequence[str],
    runtime: Runtime,
    hidden_files: Mapping[Path, Path],
) -> Iterator[Row]:
    """What is to be said of copies that Python never imports; `sites` as on its path, and
    `hidden_files` are shared objects and what hides each."""
    python = Python.of(runtime)
    chosen = {normal(name) for name in names}
    told: set[str] = set()
    for hidden in hidden_copies(runtime.target, sites):
        copy, used = hidden.copy, hidden.used
        name = normal(copy.name)
        has_to_do_with_torch = is_of_torch(copy, python) or is_of_torch(used, python)
        if name == "torch" or not (name in chosen if chosen else has_to_do_with_torch):
            continue
        since = ", which PYTHONPATH names" if names_in_variable(used.site) else ""
        why = f"Python takes {used.version} in {used.site}{since}, so this copy was not judged"
        finding = _note(copy, codes.HIDDEN_COPY, printable(why))
        told.add(name)
        yield notice(finding, copy.place, package=copy.name, version=copy.version)
    for file, place in hidden_files.items():
        owner = find_owner(runtime.target, file)
        name = normal(owner.name) if owner else str(place)
        if name in told or not needs_torch_or_cuda(read_binary(file, light=True)):
            continue
        told.add(name)
        why = printable(f"Python takes {place}, so {file} was not judged")
        finding = Finding(
            dimension="package",
            status=NOTE,
            code=codes.HIDDEN_COPY,
            observed=printable(str(file)),
            needed="",
            why=why,
        )
        yield notice(
            finding,
            file,
            package=owner.name if owner else None,
            version=owner.version if owner else None,
        )


def _about(
    package: Distribution, rows: Sequence[Row], runtime: Runtime, *, is_named: bool
) -> Finding | None:
    """The remark on a package, or the fault that its files show."""
    own = [row for row in rows if normal(row.package or "") == normal(package.name)]
    files = files_of(runtime.target, package)
    objects = [name for name in files if is_shared_object_name(name)]
    return (
        _other_python(package, objects, runtime, has_rows=bool(own))
        or no_file(package, runtime)
        or _without_its_binaries(package, objects, runtime)
        or _falls_back(package, own)
        or _without_any(package, files, objects, runtime, is_named=is_named)
    )


def _note(package: Distribution, code: codes.Code, why: str, *, status: str = NOTE) -> Finding:
    return Finding(
        dimension="package",
        status=status,
        code=code,
        observed=f"{package.name} {package.version}",
        needed="",
        why=why,
    )


def _other_python(
    package: Distribution, objects: Sequence[str], runtime: Runtime, *, has_rows: bool
) -> Finding | None:
    """Is its wheel for another Python? Rows on its binaries say it better."""
    tags = wheel_tags(runtime.target, package.place)
    if has_rows or not tags or any(fits_python(tag, Python.of(runtime)) for tag in tags):
        return None
    why = f"its wheel is for {some(tags)}, not for Python {dotted(runtime.python[:2])}"
    module = _module_without_a_tag(runtime.target, package, objects)
    if module is None:
        return _note(package, codes.PACKAGE_OF_ANOTHER_PYTHON, why)
    why = f"{why}: its module {module.file} does not load"
    finding = _note(package, codes.PACKAGE_OF_ANOTHER_PYTHON, why, status=REJECTED)
    return finding._replace(fix=fixes.fix_for(fixes.Wrong.FILES, module, runtime))


def _module_without_a_tag(
    target: Target, package: Distribution, objects: Sequence[str]
) -> BinaryRecord | None:
    """A module for Python whose file does not say for which: it imports it, whichever it is."""
    for name in [name for name in objects if Path(name).name.count(".") == 1][:_MAX_MODULES]:
        binary = read_binary(package.site / name, light=True)
        if binary.modules:
            return binary._replace(owner=find_owner(target, binary.path))
    return None


def _has_families(target: Target, package: Distribution) -> bool:
    """Whether it has files for several torches."""
    return bool(families(distributions(target, package.site).get(package.place, [])))


def no_file(package: Distribution, runtime: Runtime, text: str = "") -> Finding | None:
    """Has a package no file for this torch, or for its CUDA, where it has one for others? With a
    text, only files of which it names one count."""
    objects = [name for name in files_of(runtime.target, package) if is_shared_object_name(name)]
    by_torch = _no_file_for_torch(package, runtime, text)
    return by_torch or _no_file_for_cuda(package, objects, runtime.torch)


def _no_file_for_torch(package: Distribution, runtime: Runtime, text: str = "") -> Finding | None:
    """Does it open a file that is named after the version of torch, and has none for this one?"""
    files = distributions(runtime.target, package.site).get(package.place, [])
    torch = runtime.torch
    if torch is None:
        return None
    unfit = [family for family in families(files) if not family.fits(torch)]
    if text:
        unfit = [family for family in unfit if family.name.partition("*")[0] in text]
    if not unfit:
        return None
    name = printable(unfit[0].name)
    there = some(unfit[0].versions(), 20)
    return Finding(
        dimension="package files",
        status=REJECTED,
        code=codes.NO_FILE_FOR_TORCH,
        observed=f"files for torch {there}",
        needed=f"{name} for torch {torch.version}",
        why=f"it opens {name}, and has files for torch {there} alone",
        fix=fixes.torch_of_files(runtime, package.name, unfit[0].versions()[-1]),
    )


def _no_file_for_cuda(
    package: Distribution, objects: Sequence[str], torch: TorchInstall | None
) -> Finding | None:
    """Does it take one of several files by torch's CUDA, and is there none for this one?"""
    matches = [re.fullmatch(r"(?:.*/)?(\w+_cuda)(\d{2,3})\.so", name) for name in objects]
    of_cuda = {match[2]: match[1] for match in matches if match}
    version = parse_version(torch.cuda if torch else None)
    if not of_cuda or version is None or len(version) < 2:
        return None
    forced = os.environ.get("BNB_CUDA_VERSION", "") if package.name == "bitsandbytes" else ""
    expected = forced or f"{version[0]}{version[1]}"
    if expected in of_cuda:
        return None
    stem = next(iter(of_cuda.values()))
    there = some([f"{number[:-1]}.{number[-1]}" for number in sorted(of_cuda, key=int)], 20)
    return Finding(
        dimension="package files",
        status=REJECTED,
        code=codes.NO_FILE_FOR_CUDA,
        observed=f"files for CUDA {there}",
        needed=f"{stem}{printable(expected[:10])}.so",
        why=f"it takes {stem}{printable(expected[:10])}.so, and has files for CUDA {there} alone",
        fix=fixes.in_words(
            f"install a release of {package.name} that has a file for CUDA "
            f"{dotted(version[:2])}, or a torch for one of CUDA {there}",
        ),
    )


def _without_its_binaries(
    package: Distribution, objects: Sequence[str], runtime: Runtime
) -> Finding | None:
    name = normal(package.name)
    start = NEEDS.get(name) or CAN_DO_WITHOUT.get(name)
    if start is None or any(Path(file).name.startswith(start) for file in objects):
        return None
    if name in FALLS_BACK:
        why = f"it was installed without its binaries ({start}*.so): {FALLS_BACK[name]}"
        return _note(package, codes.FALLS_BACK, why)
    is_needed = name in NEEDS
    what = "its import" if is_needed else "what needs them"
    finding = _note(
        package,
        codes.WITHOUT_ITS_OPS,
        f"it was installed without its binaries ({start}*.so), so {what} fails",
        status=REJECTED if is_needed else NOTE,
    )
    return finding._replace(fix=get_its_binaries(package, runtime))


def get_its_binaries(package: Distribution, runtime: Runtime) -> Fix:
    """Install a wheel, or compile the package if its published sources need only torch."""
    words = f"install a wheel of {package.name} for this torch and CUDA, or compile it"
    if not has_sdist(package.name) or "+" in package.version:
        return fixes.in_words(f"{words} with nvcc in reach, as its documentation says")
    command = fixes.compile_sdist(package.name, package.version, runtime.environment)
    return fixes.command_in_words(fixes.Kind.COMPILE_PACKAGE, f"{words}: {{command}}", command)


def _falls_back(package: Distribution, own: Sequence[Row]) -> Finding | None:
    words = FALLS_BACK.get(normal(package.name))
    refused = [row for row in own if row.state in (FAILS, CANNOT_BE_TOLD)]
    if words is None or not refused:
        return None
    why = f"where {printable(refused[0].path.name)} does not load, {words}"
    return _note(package, codes.FALLS_BACK, why)


def _without_any(
    package: Distribution,
    files: Sequence[str],
    objects: Sequence[str],
    runtime: Runtime,
    *,
    is_named: bool,
) -> Finding | None:
    """What a package without shared objects is."""
    sources = [name for name in files if name.endswith(_SOURCES)]
    has_only_sources = bool(sources) and not objects
    if normal(package.name) in COMPILES or (
        has_only_sources and is_of_torch(package, Python.of(runtime))
    ):
        what = f"{len(sources)} sources in C++ or CUDA" if sources else "its code"
        why = f"it compiles {what} at first use, with the compiler and nvcc that it finds then"
        return _note(package, codes.COMPILES_AT_FIRST_USE, why)
    if objects:
        return None
    tags = wheel_tags(runtime.target, package.place)
    if tags and not any(tag.endswith("-any") for tag in tags):
        why = f"its wheel is for a platform ({some(tags, 1)}), and it holds no shared object"
        return _note(package, codes.WITHOUT_ITS_OPS, why)
    if unmet := _other_torch(package, runtime):
        return unmet
    if not is_named:
        return None
    why = "it holds Python files alone, so no binary of it can be for another torch"
    return _note(package, codes.PURE_PYTHON, why)


def _other_torch(package: Distribution, runtime: Runtime) -> Finding | None:
    """Do the metadata of a package without binaries require another torch? Only its import shows
    what its Python makes of the one that is here."""
    torch = runtime.torch
    needs = torch_requirements(package.core, Python.of(runtime))
    if torch is None or all(admits(need, torch.version) for need in needs):
        return None
    why = (
        f"it holds Python files alone, and was not imported; it requires "
        f"torch{printable(','.join(needs))}, and torch {torch.version} is here"
    )
    finding = _note(package, codes.WRITTEN_FOR_ANOTHER_TORCH, why)
    return finding._replace(needed=f"torch{printable(','.join(needs))}")


def _about_torch(packages: Sequence[Distribution], runtime: Runtime) -> Iterator[Row]:
    torch = runtime.torch
    if torch is None or torch.root == NOWHERE:
        return
    numpy = next((package for package in packages if normal(package.name) == "numpy"), None)
    for finding in (_numpy_of_torch(torch, numpy, runtime), _gpu_of_torch(torch, runtime)):
        if finding is not None:
            yield notice(finding, torch.root, package="torch", version=torch.version)


def _numpy_of_torch(
    torch: TorchInstall, numpy: Distribution | None, runtime: Runtime
) -> Finding | None:
    version = parse_version(numpy.version) if numpy else None
    if version is None or version[0] < 2 or torch.version_tuple >= _FIRST_TORCH_FOR_NUMPY_2:
        return None
    assert numpy is not None
    return Finding(
        dimension="NumPy",
        status=REJECTED,
        code=codes.NUMPY_1_TORCH,
        observed=f"NumPy {numpy.version}",
        needed="NumPy < 2",
        why=f"torch {torch.version} was built for NumPy 1, and NumPy {numpy.version} is installed: "
        "tensor.numpy() and torch.from_numpy fail",
        fix=install(runtime, "numpy<2"),
    )


def _gpu_of_torch(torch: TorchInstall, runtime: Runtime) -> Finding | None:
    """Does torch hold code for the GPUs that are here?"""
    library = torch.lib_dir / "libtorch_cuda.so"
    if not runtime.devices or not is_file(library):
        return None
    architectures = read_binary(library).cuda_archs
    without = [d for d in runtime.devices if runs_on(architectures, d.capability) is None]
    if not architectures or not without:
        return None
    device = without[0]
    return Finding(
        dimension="GPU architecture",
        status=REJECTED if len(without) == len(runtime.devices) else NOTE,
        code=codes.TORCH_LACKS_GPU,
        observed=f"{device.name} ({dotted(device.capability)})",
        needed=", ".join(architectures),
        why=f"torch {torch.version} holds no code for the {device.name} (compute capability "
        f"{dotted(device.capability)})",
        fix=fixes.in_words(
            "install a torch that has code for this GPU: a newer GPU needs the build for a newer "
            "CUDA, an old one an older torch",
        ),
    )
