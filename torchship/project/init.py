"""`torchship init`: makes a repository that has an extension one that torchship builds.

The first run looks at what the repository's own build does, and writes `build_matrix.yaml`,
`pyproject.toml` and `vendor`; the author corrects them. The second, `torchship init --finish`, adds
the files that follow. Each writes all of its files or none.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..builder.client import package_folder
from ..release.start import missing_requirements, start
from .archive import make_archive
from .build_section import BuildSection, add_cuda_macros, make_build, with_found
from .carried import Report
from .cmake_text import read_cmake
from .errors import REFUSED, ProjectError
from .finish import PARTS, finish
from .metadata_section import (
    MATRIX,
    PYPROJECT,
    Metadata,
    make_metadata,
    project_toml,
    project_yaml,
)
from .record import PATH, VendorRecord, content_digest, record_text
from .render import TEMPLATES, File, names_of, render_frame
from .seen import Both, join
from .setup_run import MAX_SECONDS, run_setup
from .setup_text import read_setup
from .stops import find_stops, importers, setup_cfg_sections
from .survey import Survey, find_sources, survey
from .toml_text import kept_tables, table_names
from .written import stage, write_all

SHIM = "vendor/backend.py"
#: Tables that torchship writes, or whose part it takes.
_TABLES = (
    "build-system",
    "project",
    "tool.setuptools",
    "tool.setuptools_scm",
    "tool.setuptools-git-versioning",
    "tool.scikit-build",
    "tool.hatch.build",
)
#: The CUDA of PyPI's torch, by the matrix of the template with kernels.
_KERNELS = """\
kernels:
  cuda12:
    toolkit: "12.8"
    archs: [sm_70, sm_80, sm_90, sm_100, sm_120, compute_120]
    code_in: glue
  cuda13:
    toolkit: "13.0"
    archs: [sm_75, sm_80, sm_90, sm_100, sm_120, compute_120]
    code_in: glue
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write build_matrix.yaml, pyproject.toml and vendor for the extension in a repository. "
        f"Its setup.py is run twice, in copies, for at most {MAX_SECONDS} s each: as a machine "
        "without CUDA and as one with CUDA."
    )
    add = parser.add_argument
    add("root", metavar="DIR", nargs="?", type=Path, default=Path(), help="the repository (.)")
    add("--name", help="of the wheels; by default what setup.py says")
    add("--no-run", action="store_true", help="read setup.py as text; what it computes is named")
    python = "the Python with which you build the repository, with torch (this one)"
    add("--python", metavar="PATH", default=sys.executable, help=python)
    add("--finish", action="store_true", help="add the files that follow from both")
    without = "with --finish: leave these out; may be given again"
    add("--without", choices=sorted(PARTS), action="append", default=[], help=without)


def run(options: argparse.Namespace) -> int:
    try:
        root = options.root.resolve()
        if options.finish:
            if missing_requirements():  # of what follows from a matrix
                start("torchship", options.arguments, root)
            print("\n".join(finish(root, options.without)))
            return 0
        if not options.no_run:
            what = "setup.py" if (root / "setup.py").is_file() else "setuptools for pyproject.toml"
            print(
                f"running {what} of {root} in two copies, by {options.python}; --no-run only reads",
                flush=True,
            )
        plan = plan_init(root, options.name, python=options.python, is_run=not options.no_run)
        print("\n".join(plan.text()), flush=True)
        write_all(root, plan.files)
        stage(root, [name for name in plan.files if name != PYPROJECT])
    except (ProjectError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    print("\n".join(f"written {name}" for name in plan.files))
    return 0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What init is going to write, and what it says before."""

    files: dict[str, File]  #: by path in the repository
    report: Report
    found: tuple[str, ...]
    stops: tuple[str, ...]  #: what would stop a build, or a later step
    to_do: tuple[str, ...]

    def text(self) -> Iterator[str]:
        yield from self.report.text()
        yield from (f"found: {line}" for line in self.found)
        if self.stops:
            yield f"{len(self.stops)} that would stop a build; mend first:"
            yield from (f"  - {stop}" for stop in self.stops)
        yield "left to do:"
        yield from (f"  - {line}" for line in self.to_do)


def plan_init(
    root: Path, name: str | None = None, *, python: str = sys.executable, is_run: bool = True
) -> Plan:
    """Looks at the repository, and plans its files; nothing is written.

    Raises ProjectError if there is a matrix already, or no extension, or if a file of the author's
    is in the way.
    """
    _refuse_what_is_there(root)
    report = Report()
    both = _look(root, python, report, is_run=is_run)
    seen = both.seen
    build = make_build(root, both, report)
    if not build.sources:
        why = "nothing that was seen names the sources, so all that lie here are taken"
        with_found(build, find_sources(root), why, report)
    if not build.sources:
        raise ProjectError(
            f"{root} has no C++ or CUDA source outside folders of tests and of others' code; name "
            "the folder of the extension's repository, or make a new one with torchship new"
        )
    facts = survey(root, build.sources, [*build.host.defines, *build.cuda.defines])
    add_cuda_macros(build, facts, report)
    meta = make_metadata(
        root,
        _name(name or seen.metadata.name or root.name),
        both,
        build=build,
        torches=_minors(_template()),
        report=report,
    )
    for what in dict.fromkeys([*both.without.unknown, *both.with_cuda.unknown]):
        report.left(what, seen.place, "it could not be seen")
    for name in dict.fromkeys([*both.without.untaken, *both.with_cuda.untaken]):
        why = "nothing turns it on, so what stands there was left out"
        report.left(f"if({name})", "CMakeLists.txt", why)
    for name in dict.fromkeys([*both.without.written, *both.with_cuda.written]):
        if Path(name).name == "_version.py":
            report.needless(f"file {name}", seen.place, "torchship init --finish writes it")
        else:
            why = "its run wrote it, and no build of torchship does; if you need it, commit it"
            report.left(f"file {name}", seen.place, why)
    is_for_cuda_alone = _is_for_cuda_alone(both, build, facts)
    matrix = _matrix(meta, build, facts, is_for_cuda_alone=is_for_cuda_alone)
    stops = find_stops(
        root, both, meta=meta, build=build, facts=facts, is_for_cuda_alone=is_for_cuda_alone
    )
    pyproject = _pyproject(root, meta, report)
    return Plan(
        files={
            MATRIX: _file(matrix),
            PYPROJECT: _file(pyproject),
            **{name: _file(text) for name, text in build.wrappers().items()},
            **_vendor(meta),
        },
        report=report,
        found=tuple(_found(both, facts, is_for_cuda_alone=is_for_cuda_alone)),
        stops=tuple(stops),
        to_do=tuple(_to_do(root, meta, build, facts)),
    )


def _refuse_what_is_there(root: Path) -> None:
    if not root.is_dir():
        raise ProjectError(f"{root} is not a folder; name the repository of an extension")
    for name in (MATRIX, SHIM, str(PATH)):
        if (root / name).exists():
            raise ProjectError(
                f"{root / name} is there already, and init overwrites nothing; change it by hand, "
                "or remove it to begin again"
            )
    if (root / PYPROJECT).exists() and not _is_committed(root, PYPROJECT):
        raise ProjectError(
            f"init changes tables of {root / PYPROJECT}, and git does not hold it as it is; commit "
            "it first, so that `git diff` shows the change and `git checkout` takes it back"
        )


def _is_committed(root: Path, name: str) -> bool:
    command = ["git", "-C", str(root), "status", "--porcelain", "--ignored", "--", name]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode == 0 and not result.stdout.strip()


def _callers_of_setup(root: Path) -> list[str]:
    """The files of the repository that run setup.py: workflows, scripts and pages."""
    command = ["git", "-C", str(root), "grep", "-lIE", r"python[0-9.]* +(-[^ ]+ +)*setup\.py"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.splitlines()


def _look(root: Path, python: str, report: Report, *, is_run: bool) -> Both:
    """What the repository's own build does; from setup.py, pyproject.toml and CMakeLists.txt."""
    both = run_setup(root, python) if is_run else read_setup(root)
    if is_run and both.without.error and both.with_cuda.error:
        why = (
            f"its run ended with {both.with_cuda.error!r}, so it was read as text; mend that, or "
            "name the Python that builds it: --python"
        )
        report.left("what setup.py computes", both.with_cuda.place, why)
        both = read_setup(root)
    elif is_run and both.with_cuda.error:
        why = f"its run as a machine with CUDA ended with {both.with_cuda.error!r}"
        report.left("what it builds with CUDA", both.with_cuda.place, why)
    if any(extension.sources for extension in both.seen.extensions):
        return both
    modules = [extension.name for extension in both.seen.extensions]
    folder = next(filter(None, (extension.cmake for extension in both.seen.extensions)), "")
    if cmake := read_cmake(root, folder, modules):
        for name in modules:
            report.needless(f"module {name}", both.seen.place, "torch.ops takes its place")
        return join(both, cmake)
    file = root / folder / "CMakeLists.txt"
    if file.is_file():
        why = "no target that links torch was seen, so its definitions and flags are not known"
        report.left("what CMake builds", str(file.relative_to(root)), why)
    return both


def _name(said: str) -> str:
    name = re.sub(r"[-_.]+", "-", said).lower()
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ProjectError(
            f"the name {said!r} must be lower-case words joined by `-` or `_`; name another: --name"
        )
    return name


def _is_for_cuda_alone(both: Both, build: BuildSection, facts: Survey) -> bool:
    """Whether no machine without CUDA builds anything, and no source has code for the CPU."""
    if not build.cuda.sources or facts.has_cpu_code:
        return False
    return both.needs_cuda or not (both.without.extensions or build.host.sources)


def _namespace(meta: Metadata, facts: Survey) -> str:
    return facts.namespaces[0] if facts.namespaces else meta.package


def _operator(facts: Survey) -> str:
    """The first operator whose name a matrix takes; "" if there is none."""
    return next((name for name in facts.operators if name[0].isalpha()), "")


def _matrix(meta: Metadata, build: BuildSection, facts: Survey, *, is_for_cuda_alone: bool) -> str:
    """The matrix of a project without kernels, with this one's names, code and torches."""
    content = _template()
    operator = _operator(facts) or "YOUR_OPERATOR"
    project = project_yaml(meta, _namespace(meta, facts), operator)
    content = re.sub(r"(?m)^project:\n(?:  .*\n)*", lambda _: project, content)
    # Another platform is added once this one works.
    content = re.sub(r"(?m)^  linux-aarch64:\n(?:    .*\n)*", "", content)
    devices = [] if is_for_cuda_alone else ["cpu"]
    if build.cuda.sources:
        content = content.replace("kernels: {}\n", _KERNELS)
        devices += ["cu12", "cu13"]
    section = "\n".join([*build.yaml(), "", ""])
    content = content.replace("# The glue that every", f"{section}# The glue that every", 1)
    content = _with_allowed(content, meta.torches)
    return _with_torches(content, devices, meta.torches, uses_aten=facts.uses_aten)


def _template() -> str:
    return (TEMPLATES / "aten" / MATRIX).read_text(encoding="utf-8")


def _minors(content: str) -> list[str]:
    return re.findall(r'(?m)^  "(2\.\d+)":$', content.partition("\ntorch:\n")[2])


def _with_allowed(content: str, allowed: Sequence[str]) -> str:
    """Without the torches that the repository does not take, except those of the stable glue."""
    before, mark, torches = content.partition("\ntorch:\n")
    named = re.findall(r'(?m)^  (?:target|built_with|headers): "(2\.\d+)"', before)
    for minor in {*_minors(content)} - {*named, *allowed}:
        torches = re.sub(rf'(?m)^  "{re.escape(minor)}":\n(?:    .*\n)*', "", torches)
    default = re.search(r'(?m)^  default_torch: "(.*)"', before)
    if default and default[1] not in allowed:
        before = before.replace(default[0], f'  default_torch: "{allowed[-1]}"')
    return before + mark + torches


def _with_torches(
    content: str, devices: Sequence[str], allowed: Sequence[str], *, uses_aten: bool
) -> str:
    """The content with a glue for each torch; with the stable one alone if no code is ATen's."""
    before, mark, torches = content.partition("\ntorch:\n")
    minors = re.findall(r'(?m)^  "2\.\d+":\n(?:    .*\n)*', torches)
    if not uses_aten:
        stable = f"  devices: [{', '.join(devices)}]"
        before = re.sub(r"(?m)^  devices: .*$", stable, before)
        later = [minor for minor in minors if "    aten:" not in minor]
        return before + mark + "".join(later)
    before = re.sub(r"(?m)^  devices: .*$", "  devices: []", before)
    return before + mark + "".join(_with_glue(minor, devices, allowed) for minor in minors)


def _with_glue(minor: str, devices: Sequence[str], allowed: Sequence[str]) -> str:
    if minor.split('"')[1] not in allowed:
        devices = ()
    cuda = re.search(r'cuda: \{version: "(\d+)', minor)
    of_torch = ("cpu", f"cu{cuda[1]}" if cuda else "")
    own = ", ".join(device for device in devices if device in of_torch)
    return re.sub(r"    aten: .*\n", "", minor) + f"    aten: [{own}]\n"


def _pyproject(root: Path, meta: Metadata, report: Report) -> str:
    path = root / PYPROJECT
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    for name in table_names(old):
        if name.startswith(_TABLES[2:]):
            why = (
                "torchship builds without CMake"
                if name.startswith("tool.scikit-build")
                else "torchship packs the one package, and its version is that of _version.py"
            )
            report.needless(f"table {name}", PYPROJECT, why)
        elif not name.startswith(_TABLES):
            report.carried(f"table {name}", PYPROJECT, f"{PYPROJECT}: as it was")
    own = "\n".join(project_toml(meta)) + "\n"
    return "\n".join([own, *kept_tables(old, _TABLES)])


def _file(text: str) -> File:
    return File(text.encode(), 0o644)


def _vendor(meta: Metadata) -> dict[str, File]:
    """torchship itself, as one archive beside the shim that opens it."""
    names = names_of(meta.package)  # as the matrix has them, by which --finish renders it again
    shim = render_frame(replace(names, distribution=meta.distribution))[SHIM]
    with TemporaryDirectory(prefix="torchship-init-") as folder:
        archive = make_archive(Path(folder))
        content = archive.read_bytes()
    record = VendorRecord(
        version=archive.name.split("-")[1],
        archive=archive.name,
        generated={SHIM: content_digest(shim.content)},
    )
    return {
        f"vendor/{archive.name}": File(content, 0o644),
        SHIM: shim,
        PATH.as_posix(): _file(record_text(record)),
    }


def _found(both: Both, facts: Survey, *, is_for_cuda_alone: bool) -> Iterator[str]:
    lane = "ATen's headers: a glue for each torch" if facts.uses_aten else "the stable ABI alone"
    yield f"{len(facts.sources)} C++ and {len(facts.cuda_sources)} CUDA sources, with {lane}"
    if is_for_cuda_alone:
        yield "code for CUDA alone; where that is wrong, add cpu to `aten:` in the matrix"
    elif both.needs_cuda:
        yield (
            "code for the CPU, though the repository's own build needs CUDA; if a glue for the CPU "
            "has not all that it calls, take cpu out of `aten:` in the matrix"
        )
    kind = "bound by pybind11, which become operators" if facts.has_pybind else "operators"
    yield f"{', '.join(facts.operators) or 'none'} ({kind})"


def _to_do(root: Path, meta: Metadata, build: BuildSection, facts: Survey) -> Iterator[str]:
    package = meta.package
    namespace = _namespace(meta, facts)
    yield f"read {MATRIX} and {PYPROJECT}"
    own, others = setup_cfg_sections(root)
    names = ["setup.py"] * (root / "setup.py").exists()
    names += ["setup.cfg"] * bool(own and not others)
    if names:
        runs = importers(root, "setup") if "setup.py" in names else []
        beside = f" (of {', '.join(runs)} too, for its import of setup.py)" if runs else ""
        yield f"git rm {' '.join([*names, *runs])}: {PYPROJECT} takes the place{beside}"
    if "setup.py" in names and (callers := _callers_of_setup(root)):
        instead = "pip and `python -m build` take its place"
        yield f"{', '.join(callers)}: setup.py is run there; {instead}"
    if not _operator(facts):
        yield "name one of your operators as `operator:` in the matrix; none it takes was found"
    folder = package_folder(root, package).relative_to(root)
    if str(folder) == package and (programs := importers(root, package)):
        more = f" and {len(programs) - 1} more" if programs[1:] else ""
        has_sources = any(name.startswith(f"{package}/") for name in build.sources)
        paths = f", and its paths in {MATRIX} to src/{package}" if has_sources else ""
        yield (
            f"mkdir -p src && git mv {package} src/{paths}: {programs[0]}{more} would find the "
            f"source {package}, which has no binaries, before what is installed"
        )
    yield f"in {folder}/__init__.py, in place of what loads the extension:"
    yield "      from .loader import LOADER"
    yield "      if LOADER.at_import():  # not for the doctor, which works where no binary does"
    yield "          from .ops import ...  # whatever needs the operators"
    yield f"  and torch.ops.{namespace}.NAME in place of names of the extension's module"
    for_cuda = [name for name in build.cuda.sources if survey(root, [name]).operators]
    if for_cuda and build.host.sources:
        how = f"getattr(torch.ops.{namespace}, NAME, None)"
        yield f"  what {', '.join(for_cuda)} registers is not in a build for the CPU: {how}"
    yield "torchship init --finish: adds the files that follow, with a smoke.py for you to complete"
    yield "then scripts/build_all.sh host, and scripts/test.sh"
