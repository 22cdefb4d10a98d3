"""What would stop the build of an adopted repository, said before anything is written."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..builder.client import package_folder
from .build_section import BuildSection, empty_submodule
from .collisions import Collision, same_functions, same_headers
from .metadata_section import MATRIX, PYPROJECT, Metadata
from .names import OF_ANOTHER, why_not
from .render import names_of
from .seen import Both
from .survey import Survey

#: What torchship writes into the package, and which the author's own file would hide.
_OWN = ("engine/__init__.py", "jit.py", "loader.py", "__main__.py")
_NAMING = ", and name the macro under `glue: cuda: defines:`"


def find_stops(
    root: Path,
    both: Both,
    *,
    meta: Metadata,
    build: BuildSection,
    facts: Survey,
    is_for_cuda_alone: bool,
) -> Iterator[str]:
    """A sentence for each, with what to do."""
    yield from _of_the_package(root, both, meta)
    yield from _of_the_sources(facts, build, is_for_cuda_alone=is_for_cuda_alone)
    names = Counter(e.name for e in both.seen.extensions if e.name)
    for name, count in names.items():
        if count > 1:
            yield f"{count} extensions have the name {name}; rename all but one"
    own, others = setup_cfg_sections(root)
    if own:
        what = f"remove {', '.join(f'[{name}]' for name in own)}" if others else "git rm setup.cfg"
        yield f"setup.cfg says what {PYPROJECT} says, and setuptools reads both: {what}"
    yield from _of_submodules(root, both)
    yield from _collisions(root, both, build)


def setup_cfg_sections(root: Path) -> tuple[list[str], list[str]]:
    """The sections of setup.cfg that describe the package, and all others."""
    path = root / "setup.cfg"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    names = re.findall(r"(?m)^\[([^\]\n]+)\]", text)
    own = [name for name in names if re.match(r"metadata$|options(\.|$)", name)]
    return own, [name for name in names if name not in own]


def _of_submodules(root: Path, both: Both) -> Iterator[str]:
    paths = [
        path
        for seen in (both.without, both.with_cuda)
        for extension in seen.extensions
        for path in (*extension.include, *extension.sources)
    ]
    for module in dict.fromkeys(filter(None, (empty_submodule(root, path) for path in paths))):
        yield (
            f"the submodule {module} is not checked out, and the build names a folder in it: "
            f"git submodule update --init {module}, and run init again"
        )


def _collisions(root: Path, both: Both, build: BuildSection) -> Iterator[str]:
    texts = {
        name: (root / name).read_text(encoding="utf-8", errors="replace")
        for name in build.sources
        if (root / name).is_file()
    }
    for each in same_functions(texts):
        if build.are_apart(each.first, each.second):
            continue
        yield (
            f"{each.first} and {each.second} both define {each.what}, and the glue for CUDA has "
            "both: rename it in one of them, or write static before it where no other source "
            "calls it"
        )
    for each in dict.fromkeys(_same_headers(root, both, build)):
        yield (
            f"{each.first} and {each.second} differ, and sources include {each.what}, for which "
            "the glue searches both folders: rename one, or include it by its path from the source"
        )


def _same_headers(root: Path, both: Both, build: BuildSection) -> Iterator[Collision]:
    """Each source searches the folders of its own section first, whatever the order of its
    extension was."""
    yield from same_headers(root, build.host.include, build.host.sources)
    yield from same_headers(root, build.cuda.include, build.cuda.sources)
    carried = {*build.host.include, *build.cuda.include}
    for extension in both.seen.extensions:
        own = [folder for folder in extension.include if folder in carried]
        yield from same_headers(root, own, extension.sources)


def _move(root: Path, folder: str, package: str) -> str:
    # Into a folder that is there, git would move the package as one below it.
    if (root / package).is_dir():
        return f"git mv {folder}/* {package}/"
    if scripts := importers(root, package):
        why = f"beside {', '.join(scripts)}, Python would find the source before what is installed"
        return f"mkdir -p src && git mv {folder} src/{package} ({why})"
    return f"git mv {folder} {package}"


def importers(root: Path, module: str) -> list[str]:
    """The programs that import a module by name and find it in the folder of the repository first:
    those in that folder, and those that put a folder on Python's path."""
    pattern = re.compile(rf"(?m)^\s*(?:import|from) {re.escape(module)}\b")
    found = []
    for path in sorted(root.rglob("*.py")):
        inner = path.relative_to(root)
        if inner.parts[0] in (module, "setup.py", "build", "vendor"):  # setup.py goes
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if pattern.search(text) and (len(inner.parts) == 1 or "sys.path.insert(" in text):
            found.append(str(inner))
    return found


def _of_the_sources(
    facts: Survey, build: BuildSection, *, is_for_cuda_alone: bool
) -> Iterator[str]:
    for twice in facts.registered_twice:
        if build.are_apart(twice.first, twice.second):
            continue
        yield f"{twice.first} and {twice.second} both register {twice.what}: {twice.advice}"
    if facts.with_python:
        files = ", ".join(facts.with_python)
        yield f"{files}: remove Python.h and PyInit_, or the macro that asks for them"
    if facts.with_cuda_headers and not is_for_cuda_alone:
        files = ", ".join(facts.with_cuda_headers)
        macro = next(iter(facts.cuda_macros), "WITH_CUDA")
        naming = "" if macro in build.cuda.defines else _NAMING
        yield (
            f"{files}: include headers of CUDA, which the glue for the CPU has not; put them under "
            f"#ifdef {macro}{naming}"
        )
    if len(facts.namespaces) > 1:
        yield f"one project has one namespace of operators; {facts.namespaces} were found"


def _of_the_package(root: Path, both: Both, meta: Metadata) -> Iterator[str]:
    package = package_folder(root, meta.package)
    folder = both.seen.metadata.packages.get(meta.package)
    if folder is not None and not (root / folder / "__init__.py").is_file():
        yield (
            f"{folder} has no __init__.py, so other distributions may have a part of the package "
            f"{meta.package}, and torchship writes into it: make a package for this one alone, and "
            f"name it as `package:` in {MATRIX}"
        )
    elif folder is not None and root / folder != package:
        yield (
            f"the package {meta.package} is in {folder}, and torchship takes it beside {MATRIX}, "
            f"in src or in python: {_move(root, folder, meta.package)}"
        )
    elif not (package / "__init__.py").is_file():
        yield (
            f"there is no {meta.package}/__init__.py: make the package, or name another as "
            f"`package:` in {MATRIX}"
        )
    version = package / "_version.py"
    if version.is_file() and not re.search(r"(?m)^__version__\s*[:=]", version.read_text("utf-8")):
        yield (
            f"{version.relative_to(root)} has no __version__, which torchship reads there; rename "
            f'it, or add the line __version__ = "{meta.version}"'
        )
    for name in _OWN:
        own = package / name
        if own.exists():
            yield f"{own.relative_to(root)} is yours, and torchship needs the name; rename yours"
    reason = why_not(meta.distribution)
    is_known = (
        reason == OF_ANOTHER and names_of(both.seen.metadata.name).distribution == meta.distribution
    )
    if reason and not is_known:
        yield f"the name {meta.distribution} {reason}; choose another: --name"
