"""The linters of a project: formats, style, types, workflows and shell syntax."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..engine import MODULES, PARTS
from .facts import find_package
from .record import read_record

_TORCHSHIP = Path(__file__).resolve().parents[1]
_NATIVE = {".h", ".cpp", ".cu", ".c", ".cuh", ".cc"}
_NO_SOURCES = {"build", "dist", "vendor"}


def lint(root: Path, env: Path, *, fix: bool) -> list[str]:
    """The names of the checks that failed; with `fix`, corrects what the linters can before.

    A linter runs where the project has settings for it: `torchship new` writes them, and a
    repository that torchship did not begin may have been written by other rules.
    """
    tools = env / "bin"
    native = sorted(map(str, _native_sources(root)))
    has_ruff = _has_settings(root, "ruff", "ruff.toml", ".ruff.toml")
    if fix and has_ruff:
        _passes(root, [str(tools / "ruff"), "check", "--fix", "--quiet", "."])
        _passes(root, [str(tools / "ruff"), "format", "--quiet", "."])
    if fix and _has_settings(root, "", ".clang-format"):
        _passes(root, [str(tools / "clang-format"), "-i", *native])
    return [name for name, command in _checks(root, tools, native) if not _passes(root, command)]


def _has_settings(root: Path, tool: str, *files: str) -> bool:
    content = (root / "pyproject.toml").read_text(encoding="utf-8")
    is_in_pyproject = bool(tool) and f"[tool.{tool}" in content
    return is_in_pyproject or any((root / name).is_file() for name in files)


def _checks(root: Path, tools: Path, native: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    if _has_settings(root, "ruff", "ruff.toml", ".ruff.toml"):
        yield "ruff format", [str(tools / "ruff"), "format", "--check", "--quiet", "--diff", "."]
        yield "ruff check", [str(tools / "ruff"), "check", "--quiet", "."]
    if native and _has_settings(root, "", ".clang-format"):
        yield "clang-format", [str(tools / "clang-format"), "--dry-run", "-Werror", *native]
    if _has_settings(root, "mypy", "mypy.ini", ".mypy.ini"):
        yield "mypy", _mypy(root, tools)
    # The author's own workflows, of which init records an empty hash, are the author's matter.
    record = read_record(root).generated
    generated = [name for name, digest in record.items() if digest and name.endswith(".yml")]
    if workflows := [str(root / n) for n in generated if "workflows" in n and (root / n).is_file()]:
        schema = ["--quiet", "--builtin-schema", "vendor.github-workflows"]
        yield "workflows: schema", [str(tools / "check-jsonschema"), *schema, *workflows]
        options = ["--offline", "--quiet", "--no-progress"]
        yield "workflows: zizmor", [str(tools / "zizmor"), *options, *workflows]
    for script in sorted(root.glob("scripts/*.sh")):
        yield f"bash -n {script.name}", ["bash", "-n", str(script)]


def _native_sources(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        parts = path.relative_to(root).parts
        is_copy = parts[1:2] == ("engine",)  # of torchship, by a build
        is_ours = not is_copy and parts[0] not in _NO_SOURCES
        is_ours &= not any(part.startswith(".") for part in parts)
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
    for name in (*PARTS, *(f"{module}.py" for module in MODULES)):
        (view / package.name / "engine" / name).symlink_to(_TORCHSHIP / name)
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
    """Whether a check passes; only one that fails has something to say."""
    process = subprocess.run(
        command, cwd=root, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if process.returncode:
        print(process.stdout, end="", flush=True)
    return process.returncode == 0
