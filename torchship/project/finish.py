"""The second step of `torchship init`: the files that follow from the matrix and pyproject.toml."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from .errors import ProjectError
from .record import PATH, VendorRecord, content_digest, read_record, record_text
from .regenerate import stage_generated
from .render import File, Names, generated_paths, render_frame
from .written import write_all

PYPROJECT = "pyproject.toml"
#: What an author may leave out, by the names of the files.
PARTS = {
    "scripts": ("scripts/build_all.sh", "scripts/test.sh"),
    "workflows": (
        ".github/workflows/publish.yml",
        ".github/workflows/release.yml",
        ".github/workflows/test.yml",
    ),
}
#: Those of a new project's files that are the author's, but that torchship needs.
_STARTED = (".gitignore", "CHANGELOG.md", "{package}/jit.py", "{package}/loader.py")
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
        "complete parts() in {package}/smoke.py: return operator, definition, [arguments]"
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
    from ..release.matrix.load import load

    try:
        project = load(root / "build_matrix.yaml").project
    except ReleaseError as error:
        raise ProjectError(str(error)) from error
    names = Names(
        distribution=project.distribution,
        package=project.package,
        prefix=project.prefix,
        url=project.url,
    )
    if not (root / names.package).is_dir():
        raise ProjectError(
            f"{root / names.package} is not a folder, but build_matrix.yaml says `package: "
            f"{names.package}`; correct it, or move the package there"
        )
    record = read_record(root)
    frame = render_frame(names)
    started = {
        **{path: frame[path] for path in (one.format(package=names.package) for one in _STARTED)},
        f"{names.package}/_version.py": _text(f'__version__ = "{_version(root)}"\n'),
        f"{names.package}/smoke.py": _text(
            _SMOKE.replace("{package}", names.package)
            .replace("{namespace}", project.namespace)
            .replace("{operator}", project.operator)
        ),
    }
    left_out = {name for part in without for name in PARTS[part]}
    with TemporaryDirectory(prefix="torchship-finish-") as folder:
        stage = Path(folder, "project")
        _copy_inputs(root, stage, started, names.package)
        generated = stage_generated(stage, frame, names.package)
        pyproject = (stage / PYPROJECT).read_bytes()
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
    if (root / PYPROJECT).read_bytes() != pyproject:  # its lines with `#=` follow from the matrix
        new[PYPROJECT] = File(pyproject, 0o644)
    hashes = {
        name: content_digest(generated[name].content) if name in new else record.generated.get(name)
        for name in generated_paths(names.package)
    }
    # An update creates what the record does not know, so what was left out has an empty hash.
    known = {name: value or "" for name, value in hashes.items()}
    new[PATH.as_posix()] = _text(
        record_text(VendorRecord(version=record.version, archive=record.archive, generated=known))
    )
    write_all(root, new)
    return [*_written(new), *_kept(kept, generated), *_said(root, left_out, names.package)]


def _text(content: str) -> File:
    return File(content.encode(), 0o644)


def _written(new: Collection[str]) -> Iterator[str]:
    yield from (f"written {name}" for name in new)


def _kept(names: Collection[str], generated: Collection[str]) -> Iterator[str]:
    for name in names:
        kind = "torchship would generate another" if name in generated else "yours stays"
        yield f"kept {name}: it was there, and {kind}"


def _said(root: Path, left_out: Collection[str], package: str) -> Iterator[str]:
    if left_out:
        yield f"left out, as asked: {', '.join(sorted(left_out))}"
    ignored = root / ".gitignore"
    lines = ignored.read_text("utf-8", "replace").splitlines() if ignored.is_file() else []
    plain = {line.strip().strip("/") for line in lines}
    written = ("build", "dist", "*.egg-info", f"{package}/lib")
    if missing := [name for name in written if name not in plain]:
        yield f"left to do: .gitignore does not name {', '.join(missing)}, which builds write"
    yield f"left to do: complete {package}/smoke.py; then scripts/build_all.sh host"


def _copy_inputs(root: Path, stage: Path, started: dict[str, File], package: str) -> None:
    """What the generated files follow from."""
    for name in ("build_matrix.yaml", PYPROJECT, "README.md", f"{package}/_version.py"):
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
