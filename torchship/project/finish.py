"""The second step of `torchship init`: the files that follow from the matrix and pyproject.toml."""

import re
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from ..builder.client import package_folder
from .errors import ProjectError
from .record import PATH, VendorRecord, content_digest, read_record, record_text
from .regenerate import stage_generated
from .render import File, Names, generated_paths, render_frame
from .written import stage, write_all

PYPROJECT = "pyproject.toml"
GITIGNORE = ".gitignore"
_PUBLISH = ".github/workflows/publish.yml"
_RELEASE = ".github/workflows/release.yml"
_TEST = ".github/workflows/test.yml"
#: What an author may leave out, by the names of the files.
PARTS = {
    "scripts": ("scripts/build_all.sh", "scripts/test.sh"),
    "workflows": (
        _PUBLISH,
        _RELEASE,
        _TEST,
    ),
}
#: Those of a new project's files that are the author's, but that torchship needs.
_STARTED = (GITIGNORE, "CHANGELOG.md", "{folder}/jit.py", "{folder}/loader.py")
_SMOKE = '''\
"""What the checker and the release tool compute to see that the operators work."""

from .engine.runtime.live_run import LiveResult, Parts, live_run
from .loader import LOADER

#: The dtypes that the operator takes, and whether it has gradients.
DTYPES = ("float32",)
GRADIENTS = False


def parts() -> Parts:
    """The operator, the same in plain PyTorch, and arguments for both."""
    import torch

    operator = torch.ops.{namespace}.{operator}
    raise NotImplementedError(
        "complete parts() in {folder}/smoke.py: return operator, definition, [arguments]"
    )


def run() -> LiveResult:
    """The live run of the checker's report."""
    return live_run(LOADER, parts, DTYPES, gradients=GRADIENTS)
'''


def finish(root: Path, without: Collection[str] = ()) -> list[str]:
    """Adds the files that are missing, and writes what is generated; returns what to print.

    A file that is there is kept. Raises ProjectError if the matrix has a mistake.
    """
    from ..release import ReleaseError
    from ..release.matrix.cells import all_cells
    from ..release.matrix.load import load

    try:
        matrix = load(root / "build_matrix.yaml")
    except ReleaseError as error:
        raise ProjectError(str(error)) from error
    project = matrix.project
    by_hand = [cell.name for cell in all_cells(matrix) if cell.optional and cell.needs_cuda_torch]
    package = package_folder(root, project.package)
    names = Names(
        distribution=project.distribution,
        package=project.package,
        prefix=project.prefix,
        folder=package.relative_to(root).as_posix(),
        url=project.url,
    )
    if not package.is_dir():
        raise ProjectError(
            f"{package} is not a folder, but build_matrix.yaml says `package: "
            f"{names.package}`; correct it, or move the package there"
        )
    record = read_record(root)
    frame = render_frame(names)
    started = {
        **{path: frame[path] for path in (one.format(folder=names.folder) for one in _STARTED)},
        f"{names.folder}/_version.py": _text(f'__version__ = "{_version(root)}"\n'),
        f"{names.folder}/smoke.py": _text(
            _SMOKE.replace("{folder}", names.folder)
            .replace("{namespace}", project.namespace)
            .replace("{operator}", project.operator)
        ),
    }
    left_out = {name for part in without for name in PARTS[part]}
    said = [*_without_use(root, record.generated, left_out)]
    left_out |= {name for name, _ in said}
    with TemporaryDirectory(prefix="torchship-finish-") as folder:
        copy = Path(folder, "project")
        _copy_inputs(root, copy, started, names.folder)
        generated = stage_generated(copy, frame, names.folder)
        pyproject = (copy / PYPROJECT).read_bytes()
    new = {
        name: file
        for name, file in {**started, **generated}.items()
        if not (root / name).exists() and name not in left_out
    }
    kept = [
        name
        for name, file in {**started, **generated}.items()
        if (root / name).is_file() and (root / name).read_bytes() != file.content
    ]
    if ignored := ignored_too(root, frame[GITIGNORE].content, names.folder):
        new[GITIGNORE] = ignored
        kept = [name for name in kept if name != GITIGNORE]
    if (root / PYPROJECT).read_bytes() != pyproject:  # its lines with `#=` follow from the matrix
        new[PYPROJECT] = File(pyproject, 0o644)
    hashes = {
        name: content_digest(generated[name].content) if name in new else record.generated.get(name)
        for name in generated_paths(names.folder)
    }
    # An update creates what the record does not know, so what was left out has an empty hash.
    known = {name: value or "" for name, value in hashes.items()}
    new[PATH.as_posix()] = _text(
        record_text(VendorRecord(version=record.version, archive=record.archive, generated=known))
    )
    write_all(root, new)
    stage(root, [name for name in new if name not in (PYPROJECT, GITIGNORE)])
    tests = new[_TEST].content.decode() if _TEST in new else ""
    return [
        *_written(new),
        *_kept(kept, generated),
        *(f"left out {name}: {why}" for name, why in said),
        *_said(left_out - {name for name, _ in said}, names.folder),
        *_other_branch(root, tests),
        *_unbuilt(by_hand if _RELEASE in new else []),
    ]


def _without_use(
    root: Path, ours: Collection[str], left_out: Collection[str]
) -> Iterator[tuple[str, str]]:
    """The workflows that would not work here, with the reason."""
    command = ["git", "-C", str(root), "rev-parse", "--show-prefix"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    folder = result.stdout.strip()
    if folder:
        for name in PARTS["workflows"]:
            why = f"GitHub reads workflows at the top of a repository, and this is its {folder}"
            yield name, why
    elif (root / _RELEASE).is_file() and _RELEASE not in ours and _PUBLISH not in left_out:
        why = f"it publishes what {_RELEASE} of torchship makes, and yours was there"
        yield _PUBLISH, why


def ignored_too(root: Path, fresh: bytes, folder: str) -> File | None:
    """A .gitignore with what builds write into the repository; None if git ignores all of it.

    What a .gitignore of the author's says stays. `fresh` is the content where there is none, and
    `folder` the package's.
    """
    path = root / GITIGNORE
    lines = (path.read_bytes() if path.is_file() else fresh).decode("utf-8", "replace").splitlines()
    written = ("/build/", "/dist/", "*.egg-info/", "__pycache__/", f"/{folder}/lib/")
    missing = [line for line in written if line not in lines and not _is_ignored(root, line)]
    if path.is_file() and not missing:
        return None
    if path.is_file():
        lines += ["", "# What the build writes"]
    return _text("\n".join([*lines, *missing, ""]))


def _is_ignored(root: Path, line: str) -> bool:
    example = line.strip("/").replace("*", "example") + "/example"
    command = ["git", "-C", str(root), "check-ignore", "--quiet", "--no-index", example]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _text(content: str) -> File:
    return File(content.encode(), 0o644)


def _written(new: Collection[str]) -> Iterator[str]:
    yield from (f"written {name}" for name in new)


def _kept(names: Collection[str], generated: Collection[str]) -> Iterator[str]:
    for name in names:
        kind = "torchship would generate another" if name in generated else "yours stays"
        yield f"kept {name}: it was there, and {kind}"


def _said(left_out: Collection[str], package: str) -> Iterator[str]:
    if left_out:
        yield f"left out, as asked: {', '.join(sorted(left_out))}"
    yield f"left to do: complete {package}/smoke.py; then scripts/build_all.sh host"


def _other_branch(root: Path, workflow: str) -> Iterator[str]:
    """What to do where the repository's default branch is none that the workflow runs for."""
    command = ["git", "-C", str(root), "symbolic-ref", "--short", "refs/remotes/origin/HEAD"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    branch = result.stdout.strip().removeprefix("origin/")
    named = re.search(r"branches: \[(.*)\]", workflow)
    if branch and named and branch not in named[1].split(", "):
        yield f"left to do: write {branch}, your default branch, in place of {named[1]} in {_TEST}"


def _unbuilt(cells: Collection[str]) -> Iterator[str]:
    """The cells whose torch no runner of the workflows has."""
    if cells:
        yield (
            f"not built by {_RELEASE}: {', '.join(cells)}; they need conda-forge's torch for "
            "CUDA, and an environment with it builds them: scripts/build_all.sh NAME"
        )


def _copy_inputs(root: Path, stage: Path, started: dict[str, File], folder: str) -> None:
    """What the generated files follow from."""
    for name in ("build_matrix.yaml", PYPROJECT, "README.md", f"{folder}/_version.py"):
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        if (root / name).is_file():
            (stage / name).write_bytes((root / name).read_bytes())
        elif name in started:
            (stage / name).write_bytes(started[name].content)


def _version(root: Path) -> str:
    """The version that pyproject.toml says; it follows from `_version.py` from then on."""
    path = root / "pyproject.toml"
    content = path.read_text(encoding="utf-8") if path.exists() else ""
    version = re.search(r'(?m)^version = "([^"]+)"', content)
    return version[1] if version else "0.1.0"
