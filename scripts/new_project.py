"""new_project.sh: makes a repository for an op of your own, or updates its engine.

Both work on a copy in a temporary folder, and touch the repository only when nothing is left to
refuse.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import keyword
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from torchship.release.schema import Project

REPO = Path(__file__).resolve().parents[1]
MATRIX = "build_matrix.yaml"
RECORD = "engine.json"

# The engine's files; only their lines with `#=` depend on the project. {package} is its package.
ENGINE = (
    *(".ci", ".clang-format", ".gitignore", "CMakeLists.txt", "MANIFEST.in", "setup.py"),
    ".github/dependabot.yml",
    ".github/workflows/publish.yml",
    ".github/workflows/pull-request.yml",
    ".github/workflows/release.yml",
    ".github/workflows/weekly.yml",
    *("cmake", "csrc/engine", "requirements", "torchship"),
    *("recipe/build.sh", "recipe/recipe.yaml", "{package}/__main__.py", "{package}/engine"),
    *(f"scripts/{name}.sh" for name in ("build_all", "cibuildwheel", "lint", "lock", "test")),
    *(
        "scripts/gather_release.sh",
        "scripts/test_env.sh",
        "scripts/release_tool.py",
        "scripts/engine_smoke.py",
    ),
    "tests/engine",
)
# Files in the root of this checkout that a new project gets, but an update does not replace.
BEGINNING = ("LICENSE", "environment.yml", "pyproject.toml")
TEMPLATES = {"rms_norm": "own_op", "aten": "own_op_aten"}
FRAME = REPO / "examples" / "project"  # the files that do not depend on the template
# What a file of an author has where --write-generated writes a part of it.
GENERATED_PART = re.compile(r"  #= |\b[\w-]+:begin\b")

# Why a name cannot be had, by the names. `is_taken` adds those of Python and of this checkout.
TAKEN: dict[str, str] = {
    "is a word of C++, and the namespace of your operators cannot have it": """
        alignas alignof and and_eq asm auto bitand bitor bool break case catch char class co_await
        co_return co_yield compl concept const const_cast consteval constexpr constinit continue
        decltype default delete do double dynamic_cast else enum explicit export extern false float
        for friend goto if inline int linux long mutable namespace new noexcept not not_eq nullptr
        operator or or_eq private protected public register reinterpret_cast requires return short
        signed sizeof static static_assert static_cast std struct switch template this thread_local
        throw true try typedef typeid typename union unix unsigned using virtual void volatile
        wchar_t while xor xor_eq""",
    "is a namespace of PyTorch's own operators or C++": """
        aoti at aten c10 c10d c10d_functional caffe2 cuda debug_mode_ops debugprims detail export
        flex_lib fsdp inductor inductor_prims mkl mkldnn mkldnn_prepacked onednn onnx onnx_symbolic
        prepacked prim prims profiler quantization quantized rngprims sparse static_runtime streams
        symm_mem torch torch_extension xnnpack""",
    "is a package that torch or a build needs, which yours would hide": """
        conda filelock fsspec functorch jinja2 markupsafe mpmath networkx ninja numpy nvidia pip
        pkg_resources pybind11 setuptools sympy torch torchgen triton typing_extensions wheel
        yaml""",
    "is a package that others use beside torch": """
        apex bitsandbytes causal_conv1d deepspeed fbgemm_gpu flash_attn flashinfer haste_pytorch
        jax kernels mamba_ssm matplotlib pandas pyg_lib scipy sklearn tensorflow torch_doctor
        torch_scatter torch_sparse torchao torchaudio torchcodec torchdata torchvision
        transformer_engine transformers vllm xformers""",
    "is a target that CMake makes itself": "all clean help install package rebuild_cache",
    "is a folder of the new repository": """
        benchmarks build cmake csrc dist docs engine examples include lib recipe requirements
        scripts tests torchship""",
}


@dataclass(frozen=True)
class Record:
    """What RECORD holds: the files of the engine, and those that it generates, in a project."""

    note: str
    version: str
    commit: str
    files: dict[str, str]  # the hash of each by its path
    generated: list[str]


def refuse(problem: str) -> NoReturn:
    sys.exit(f"error: {problem}")


def git(*arguments: str, cwd: Path = REPO) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True)


def files_of(root: Path) -> list[str]:
    """The files of a checkout that git tracks or would track."""
    listing = git("ls-files", "-co", "--exclude-standard", "-z", cwd=root)
    if listing.returncode:
        refuse(
            f"{root} must be a git checkout: {listing.stderr.strip()}; use git clone, or git init"
        )
    return sorted(name for name in listing.stdout.split("\0") if name and (root / name).is_file())


def project_of(root: Path) -> Project:
    """The block `project:` of a checkout's matrix; exits where the matrix has a mistake."""
    # Only the release tool's environment, in which this program runs, has what the import needs.
    from torchship.release import ReleaseError
    from torchship.release.matrix import load

    try:
        return load(root / MATRIX).project
    except ReleaseError as error:
        refuse(str(error))


def engine_files(root: Path, package: str) -> dict[str, Path]:
    """The engine's files in the checkout `root`, by path with {package} as in `ENGINE`."""
    files = {}
    for name in files_of(root):
        generic = re.sub(rf"^{package}/", "{package}/", name)
        if any(generic == part or generic.startswith(f"{part}/") for part in ENGINE):
            files[generic] = root / name
    return files


def digest(path: Path) -> str:
    """The hash of a file without the parts before `#=`, which are generated from the matrix."""
    return hashlib.sha256(re.sub(rb"(?m)^.*(?=  #= )", b"", path.read_bytes())).hexdigest()


def copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, to)


def bring_engine(root: Path, package: str) -> Record:
    """Copies the engine, generates files from the matrix, and writes and returns the record."""
    ours = project_of(REPO)
    files = {}
    for generic, path in engine_files(REPO, ours.package).items():
        name = generic.format(package=package)
        copy(path, root / name)
        files[name] = digest(path)
    before = {path for path in root.rglob("*") if path.is_file()}
    write_generated(root)
    after = {path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    record = Record(
        note=f"the engine of {ours.url}; its new_project.sh --update replaces these files",
        version=runpy.run_path(str(REPO / ours.package / "_version.py"))["__version__"],
        commit=git("rev-parse", "HEAD").stdout.strip(),
        files=files,
        generated=sorted(str(path.relative_to(root)) for path in after - before),
    )
    (root / RECORD).write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
    return record


def write_generated(root: Path) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "RELEASE_"))
    }
    environment |= {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    program = root / "scripts" / "release_tool.py"
    command = [sys.executable, str(program), "torchship.release", "--write-generated"]
    result = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if result.returncode:
        refuse(
            f"the release tool cannot generate the files of the project; correct its {MATRIX}:\n"
            f"{result.stdout}{result.stderr}"
        )


def matrix_for(template: Path) -> str:
    """Our matrix with the template's project; kernels and CUDA only if the template has kernels."""
    project = (FRAME / "project.yaml").read_text(encoding="utf-8")
    own_values = (template / "project.yaml").read_text(encoding="utf-8")
    for key, value in re.findall(r"^  (\w+): *(.*)$", own_values, re.MULTILINE):
        project = re.sub(rf"(?m)^  {key}: .*$", f"  {key}: {value}", project)
    matrix = (REPO / MATRIX).read_text(encoding="utf-8")
    matrix = re.sub(r"(?m)^project:\n(?:  .*\n)*", lambda _: project, matrix)
    if not (template / "csrc" / "kernels").is_dir():
        matrix = re.sub(r"(?m)^kernels:\n(?:  .*\n)*", "kernels: {}\n", matrix)
        # Deletes the CUDA kernels in a platform's `differs`.
        matrix = re.sub(r"(?m)^ +kernels:\n +cuda.*\n", "", matrix)
        matrix = re.sub(r"(?m)^( +(?:devices|aten): )\[.*\]$", r"\1[cpu]", matrix)
    return matrix


def why_not(name: str) -> str:
    """Why no project can have this name; "" if it can."""
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        return "must be lower-case words joined by `-` or `_`"
    if keyword.iskeyword(module):
        return "is a word of Python"
    if module in sys.stdlib_module_names:
        return "is a module of Python's library, which your package would hide"
    for reason, names in TAKEN.items():
        if module in names.split():
            return reason
    ours = project_of(REPO)
    if module in {ours.package, ours.namespace, ours.distribution.replace("-", "_")}:
        return "is the name of the project that the engine comes from"
    if module in locked_packages():
        return "is a package that the engine's tools need, which yours would hide"
    return ""


def locked_packages() -> set[str]:
    locks = (path.read_text(encoding="utf-8") for path in REPO.glob("requirements/*.txt"))
    names = re.findall(r"^([\w.-]+)(?:\[.*\])?==", "\n".join(locks), re.MULTILINE)
    return {name.lower().replace("-", "_") for name in names}


def new(name: str, target: Path, template: Path) -> None:
    if reason := why_not(name):
        refuse(f"NAME is {name!r}, which {reason}; choose another NAME")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        refuse(f"{target} must be empty or must not exist; name another folder")
    module = name.replace("-", "_")
    with TemporaryDirectory(prefix="new-project-") as folder:
        root = Path(folder)
        write_beginning(root, module, template)
        bring_engine(root, module)
        shutil.copytree(root, target, dirs_exist_ok=True)
    git("init", "-q", "-b", "main", cwd=target).check_returncode()
    git("add", "-A", cwd=target).check_returncode()
    engine = project_of(REPO).distribution
    print(f"{target}: {module.replace('_', '-')}, with the engine of {engine}")
    print(f"commit it, then: cd {target}; scripts/build_all.sh host; scripts/test.sh")


def write_beginning(root: Path, module: str, template: Path) -> None:
    """Writes what an author changes: the template and the frame, under the project's name."""
    for name in BEGINNING:
        shutil.copy2(REPO / name, root / name)
    settings = root / "pyproject.toml"
    examples = re.sub(r"(?m)^examples = .*$", "examples = []", settings.read_text(encoding="utf-8"))
    settings.write_text(examples, encoding="utf-8")
    (root / MATRIX).write_text(matrix_for(template), encoding="utf-8")
    for source in (FRAME, template):
        for path in sorted(source.rglob("*")):
            if path.is_file() and path.name != "project.yaml" and path.suffix != ".pyc":
                copy(path, root / str(path.relative_to(source)).replace("own_op", module))
    for path in [path for path in root.rglob("*") if path.is_file()]:
        content = path.read_text(encoding="utf-8")
        renamed = content.replace("own_op", module).replace("OWN_OP", module.upper())
        path.write_text(renamed.replace("own-op", module.replace("_", "-")), encoding="utf-8")


def update(target: Path) -> None:
    """Replaces the engine in `target`; refuses, and changes nothing, where work could be lost."""
    old = read_record(target)
    package = project_of(target).package
    ours = project_of(REPO).package
    arriving = {name.format(package=package) for name in engine_files(REPO, ours)}
    refuse_update(target, misplaced(target, {*arriving, *old.files, *old.generated}))
    with TemporaryDirectory(prefix="update-") as folder:
        root = Path(folder)
        for name in files_of(target):
            if name not in old.files and name not in old.generated:
                copy(target / name, root / name)
        new = bring_engine(root, package)
        names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
        changes = [name for name in names if differs(root / name, target / name)]
        removed = old.files.keys() - new.files.keys()
        brought = {*old.files, *old.generated, RECORD}
        refuse_update(target, changed_files(target, old.files, new.files))
        refuse_update(target, misplaced(target, changes))
        refuse_update(target, conflicts(target, {*changes} - brought, new.files))
        for name in removed:
            (target / name).unlink(missing_ok=True)
        for name in sorted(changes, key=lambda name: name == RECORD):  # the record is last
            copy(root / name, target / name)
    print(f"{target}: has the engine of this checkout; `git diff` there shows what changed")


def refuse_update(target: Path, problems: Iterable[str]) -> None:
    """Exits if there is a problem."""
    if lines := [f"  {problem}" for problem in problems]:
        refuse("\n".join([f"{target} was not changed:", *lines]))


def read_record(target: Path) -> Record:
    path = target / RECORD
    if not path.is_file():
        refuse(f"{target} has no {RECORD}: new_project.sh did not make it; name a project")
    try:
        record = Record(**json.loads(path.read_text(encoding="utf-8")))
        names = [*record.files, *record.generated]
    except (ValueError, TypeError) as error:
        refuse(f"{path} is damaged ({error}); put it back (git checkout {RECORD})")
    for name in names:
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or PurePosixPath(name).is_absolute() or parts[0] == ".git":
            refuse(
                f"{path} names {name!r}, which is no file of this repository; "
                f"put the record back (git checkout {RECORD})"
            )
    return record


def differs(new: Path, old: Path) -> bool:
    return not old.is_file() or old.read_bytes() != new.read_bytes()


def changed_files(target: Path, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """The engine's files that somebody changed; those that a stopped update brought are not."""
    for name, brought in old.items():
        path = target / name
        if path.is_file() and digest(path) not in (brought, new.get(name)):
            yield f"{name}: this file of the engine was changed; put it back (git checkout {name})"


def misplaced(target: Path, names: Iterable[str]) -> Iterator[str]:
    """Links, and folders and files in the place of each other, where the update has its files."""
    for name in sorted(names):
        for parent in list(PurePosixPath(name).parents)[:-1]:
            path = target / parent
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                yield f"{parent}: must be a folder, for {name} of the engine; rename yours"
        path = target / name
        if path.is_symlink() or path.is_dir():
            yield f"{name}: must be a file, which the engine brings; rename yours"


def conflicts(target: Path, names: Iterable[str], engine: Collection[str]) -> Iterator[str]:
    """The author's files that the update would write over; parts of some are generated."""
    for name in sorted(names):
        path = target / name
        if path.is_file() and (name in engine or not is_partly_generated(path)):
            yield f"{name}: the engine brings a file of this name; rename yours"


def is_partly_generated(path: Path) -> bool:
    return GENERATED_PART.search(path.read_text(encoding="utf-8", errors="replace")) is not None


def main() -> None:
    parser = argparse.ArgumentParser(prog="new_project.sh", allow_abbrev=False)
    parser.add_argument("name", metavar="NAME", nargs="?")
    parser.add_argument("target", metavar="DIR", type=Path, nargs="?")
    parser.add_argument("--template", choices=sorted(TEMPLATES), default="rms_norm")
    parser.add_argument("--update", metavar="DIR", type=Path)
    options = parser.parse_args()
    if options.update:
        update(options.update.resolve())
    elif options.target is None:
        parser.error("needs NAME and DIR")
    else:
        new(options.name, options.target.resolve(), REPO / "examples" / TEMPLATES[options.template])


if __name__ == "__main__":
    main()
