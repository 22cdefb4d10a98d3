"""The linters of a project: formats, style, types, workflows and shell syntax."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..builder.sources import NOT_PACKED
from .facts import find_package

_TORCHSHIP = Path(__file__).resolve().parents[1]
_NATIVE = {".h", ".cpp", ".cu", ".c", ".cuh", ".cc"}
_NO_SOURCES = {"build", "dist", "vendor"}


def lint(root: Path, env: Path, *, fix: bool) -> list[str]:
    """The names of the checks that failed; with `fix`, corrects what the linters can before."""
    tools = env / "bin"
    native = sorted(map(str, _native_sources(root)))
    if fix:
        _passes(root, [str(tools / "ruff"), "check", "--fix", "--quiet", "."])
        _passes(root, [str(tools / "ruff"), "format", "--quiet", "."])
        _passes(root, [str(tools / "clang-format"), "-i", *native])
    return [name for name, command in _checks(root, tools, native) if not _passes(root, command)]


def _checks(root: Path, tools: Path, native: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    yield "ruff format", [str(tools / "ruff"), "format", "--check", "--quiet", "--diff", "."]
    yield "ruff check", [str(tools / "ruff"), "check", "--quiet", "."]
    if native:
        yield "clang-format", [str(tools / "clang-format"), "--dry-run", "-Werror", *native]
    yield "mypy", _mypy(root, tools)
    if workflows := sorted(map(str, root.glob(".github/workflows/*.yml"))):
        schema = ["--quiet", "--builtin-schema", "vendor.github-workflows"]
        yield "workflows: schema", [str(tools / "check-jsonschema"), *schema, *workflows]
        options = ["--offline", "--quiet", "--no-progress"]
        yield "workflows: zizmor", [str(tools / "zizmor"), *options, ".github"]
    for script in sorted(root.glob("scripts/*.sh")):
        yield f"bash -n {script.name}", ["bash", "-n", str(script)]


def _native_sources(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        parts = path.relative_to(root).parts
        is_ours = parts[0] not in _NO_SOURCES and not any(part.startswith(".") for part in parts)
        if is_ours and path.suffix in _NATIVE and path.is_file():
            yield path


def _mypy(root: Path, tools: Path) -> list[str]:
    """mypy sees the package as a wheel has it, with torchship inside as `engine`."""
    package = find_package(root)
    view = root / "build" / "mypy"
    shutil.rmtree(view, ignore_errors=True)
    (view / package.name).mkdir(parents=True)
    for path in package.iterdir():
        if path.suffix in (".py", ".pyi", ".typed") or (path.is_dir() and path.name != "engine"):
            (view / package.name / path.name).symlink_to(path)
    (view / package.name / "engine").mkdir()
    for path in _TORCHSHIP.iterdir():
        if path.name not in (*NOT_PACKED, "__main__.py"):
            (view / package.name / "engine" / path.name).symlink_to(path)
    # torchship's own modules tell their types, but faults in them are no fault of the project's.
    options = ["--strict", "--no-error-summary", "--follow-imports=silent"]
    modules = [word for module in _own_modules(package) for word in ("-m", module)]
    return ["env", "MYPYPATH=build/mypy", str(tools / "mypy"), *options, *modules]


def _own_modules(package: Path) -> Iterator[str]:
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if parts[1] not in ("engine", "lib"):
            yield ".".join(part for part in parts if part != "__init__")


def _passes(root: Path, command: Sequence[str]) -> bool:
    return subprocess.run(command, cwd=root, check=False).returncode == 0
