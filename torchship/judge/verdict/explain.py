"""Finds the one cause that an error shows, and the problems of the package's own files."""

import base64
import csv
import hashlib
import sys
from contextlib import suppress
from pathlib import Path

from .. import fixes, support
from ..cache import source_root
from ..project import Project
from ..records import REJECTED, Environment, Finding, Fix, Runtime, parse_file_name
from ..text import printable, read_regular, some
from ..words import codes, faults
from .selection import Selection


def explain(
    selection: Selection, runtime: Runtime, paths: list[Path], distrusted: Finding | None
) -> Finding:
    """The one cause to show for an incomplete selection.

    `paths` are the shared objects that were found. `distrusted` is the finding against the
    build cache, None if the cache was not refused.
    """
    platforms = support.load(runtime.project.folder).platforms
    if runtime.platform not in platforms:
        return Finding(
            dimension="platform",
            status=REJECTED,
            code=codes.OTHER_PLATFORM,
            observed=runtime.platform,
            needed=" or ".join(platforms),
            why=f"there is no binary for {runtime.platform}",
            fix=fixes.without_binaries(runtime.project),
        )
    if cause := selection.cause or distrusted:
        return cause
    if not paths:
        return no_binaries(runtime)
    observed = some([path.name for path in paths], 20)
    if selection.forced:
        variable = runtime.project.variable("VARIANT")
        return _package_files(
            observed=observed,
            needed=selection.forced,
            why=f"{variable} asks for {selection.forced}, a variant that is not installed",
            code=codes.VARIANT_UNKNOWN,
            fix=fixes.unset(variable),
        )
    return _package_files(
        observed=observed,
        needed="kernels-cpu.so" if selection.glue else "a glue",
        why=f"the installed package holds no {'kernels' if selection.glue else 'glue'}",
        fix=fixes.reinstall(runtime),
    )


def _package_files(
    *, observed: str, needed: str, why: str, fix: Fix, code: codes.Code = codes.PACKAGE_FILES
) -> Finding:
    return Finding(
        dimension="package files",
        status=REJECTED,
        code=code,
        observed=printable(observed),
        needed=needed,
        why=why,
        fix=fix,
        fault=faults.PACKAGE_FILES,
    )


def no_binaries(runtime: Runtime) -> Finding:
    """The cause if the package has no binary: it is a source folder or a damaged installation."""
    package = runtime.project.folder
    if source_root(package) in (package, None):  # not one of a checkout, in whatever folder of it
        return _package_files(
            observed=f"no shared object in {package / 'lib'}",
            needed="a glue and its kernels",
            why="the installed package holds no binaries",
            fix=fixes.reinstall(runtime),
        )
    installed = installed_copies(package)
    if installed:
        return _package_files(
            observed=f"{package}, a source folder",
            needed=f"the installed package {printable(installed[0])}",
            why="the source folder shadows the installed package",
            code=codes.SOURCE_FOLDER,
            fix=fixes.in_words(_past_source(package)),
        )
    return _package_files(
        observed=f"{package}, a source folder without binaries",
        needed="binaries built for this torch",
        code=codes.SOURCE_FOLDER,
        why=f"{runtime.project.distribution} was not built here yet",
        fix=fixes.install_here(runtime),
    )


def _past_source(package: Path) -> str:
    """How Python finds the installed package behind the source."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is None or Path(script).resolve().parent != package.resolve().parent:
        return "start Python in another folder"
    # Python searches the folder of a script first, wherever it was started.
    safe = f"run python -P {printable(script)}, or " if sys.version_info >= (3, 11) else ""
    return f"{safe}move that script out of the folder of the source"


def describe_copy(other: Path, package: Path) -> str:
    """A sentence about a second copy of the package on the path, with the step to take."""
    if not (other / "__init__.py").exists():
        # Without `__init__.py`, the folder can at most be imported as an empty namespace package.
        return f"left over from a removed installation: {other}; to fix: delete that folder"
    return (
        f"another copy is on the path: {other} (in use: {package}); "
        "to fix: uninstall the one you do not want"
    )


def installed_copies(package: Path) -> list[Path]:
    """The other folders on this Python's path that have the package's name and a folder `lib`."""
    copies = []
    for entry in sys.path:
        folder = Path(entry or ".") / package.name
        with suppress(OSError, RuntimeError):
            if (folder / "lib").is_dir() and folder.resolve() != package.resolve():
                copies.append(folder)
    return copies


def no_cuda(selection: Selection, runtime: Runtime) -> Finding:
    """The cause if a CUDA build of torch gets no CUDA kernels."""
    for verdict in selection.considered:
        name = parse_file_name(verdict.binary.path.name)
        is_for_cuda = name is not None and name.cuda_major is not None
        if is_for_cuda and verdict.cause is not None:
            return verdict.cause
    observed = "CPU kernels only"
    fix = fixes.fit_torch(runtime)
    build = fixes.build(runtime.project)
    if fix != build and fix.command:
        fix = fixes.command_in_words(
            fixes.Kind.INSTALL_PROJECT, f"{{command}}   (or: {build})", fix.command
        )
    if selection.forced:
        variable = runtime.project.variable("VARIANT")
        observed = f"variant {selection.forced}, forced by {variable}"
        fix = fixes.unset(variable)
    return Finding(
        dimension="CUDA kernels",
        status=REJECTED,
        code=codes.NO_CUDA_KERNELS,
        observed=observed,
        needed="kernels for CUDA tensors",
        why="the installed package holds no CUDA kernels that fit",
        fix=fix,
        fault=faults.CPU_ONLY_BINARY,
    )


def package_problems(project: Project, environment: Environment) -> tuple[str, ...]:
    """One sentence for each kind of problem that the installer's list of files (RECORD) shows."""
    package = project.folder
    lists: list[Path] = []
    with suppress(OSError):
        lists = sorted(package.parent.glob(f"{project.wheel_name}-*.dist-info/RECORD"))
    problems = _compare(package, lists[-1]) if lists else []
    if len(lists) > 1:
        names = ", ".join(path.parent.name for path in lists)
        fix = fixes.install_once(environment, project)
        problems.insert(0, f"installed over each other: {names}; to fix: {fix}")
    return tuple(map(printable, problems))


def _compare(package: Path, record: Path) -> list[str]:
    """The problems that a RECORD shows in the package's folder, in words."""
    try:
        content = read_regular(record).decode("utf-8")
        rows = list(csv.reader(content.splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return [f"{record} cannot be read ({error})"]
    listed = {row[0] for row in rows if row}
    missing: list[str] = []
    altered: list[str] = []
    for row in rows:
        if len(row) != 3 or not row[0].startswith(f"{package.name}/") or row[0].endswith(".pyc"):
            continue
        name, digest, size = row
        try:
            if _is_altered(package.parent / name, digest, size):
                altered.append(name)
        except (OSError, ValueError):  # ValueError: a name that no file can have
            missing.append(name)
    # A list without `__init__.py` is that of an editable installation, and names no shared object.
    is_whole = f"{package.name}/__init__.py" in listed
    objects = sorted(path.name for path in package.glob("lib/*.so")) if is_whole else []
    left = [name for name in objects if f"{package.name}/lib/{name}" not in listed]
    folder = package / "lib"
    names_of_problem = {
        f"left over in {folder} from another installation: {some(left, 4)}; "
        "to fix: delete them": left,
        f"missing since it was installed: {some(missing, 4)}": missing,
        f"altered since it was installed: {some(altered, 4)}": altered,
    }
    return [problem for problem, names in names_of_problem.items() if names]


def _is_altered(path: Path, digest: str, size: str) -> bool:
    """Whether a file has not the size, or a shared object not the hash, of RECORD."""
    status = path.stat()
    if size.isdecimal() and size != str(status.st_size):
        return True
    if path.suffix != ".so" or not digest.startswith("sha256="):
        return False
    content = read_regular(path, status.st_size)
    encoded = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return encoded != digest.removeprefix("sha256=")
