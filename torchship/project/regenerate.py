"""The generated files of a project, from this torchship's templates and the project's matrix."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ..builder.options import FILE_NAME
from .errors import ProjectError
from .facts import read_names
from .record import replace_file
from .render import File, generated_paths

_MATRIX = "build_matrix.yaml"


def regenerate(root: Path, frame: Mapping[str, File]) -> dict[str, File]:
    """The right generated files of the project `root`, by path; `root` itself is not changed.

    `frame` holds those that come from templates; they too have values of the matrix.
    """
    package = read_names(root).folder
    with TemporaryDirectory(prefix="torchship-generate-") as folder:
        stage = Path(folder, "project")
        for name in (_MATRIX, "pyproject.toml", "README.md", f"{package}/_version.py"):
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            if (root / name).exists():  # a README may have another suffix
                shutil.copyfile(root / name, stage / name)
        return stage_generated(stage, frame, package)


def stage_generated(stage: Path, frame: Mapping[str, File], package: str) -> dict[str, File]:
    """Writes the generated files into `stage`, which holds what they follow from; returns them.

    `package` is the package's folder there.
    """
    paths = [*generated_paths(package), f"{package}/{FILE_NAME}"]
    for name in paths:
        if name in frame:
            replace_file(stage / name, frame[name].content, mode=frame[name].mode)
    for name, content in _expected(stage).items():
        mode = frame[name].mode if name in frame else 0o644
        replace_file(stage / name, content.encode(), mode=mode)
    return {
        name: File(
            (stage / name).read_bytes(), 0o755 if os.access(stage / name, os.X_OK) else 0o644
        )
        for name in paths
        if (stage / name).exists()
    }


def _expected(stage: Path) -> dict[str, str]:
    try:
        from ..release import ReleaseError
        from ..release.matrix import generated
        from ..release.matrix.load import load
        from ..release.matrix.settings import make_settings
    except ModuleNotFoundError as error:
        from ..release.start import REQUIREMENTS

        raise ProjectError(
            f"what follows from {_MATRIX} needs the packages of the release tool, but there is no "
            f"{error.name}; install what {REQUIREMENTS / 'release.txt'} lists"
        ) from error
    try:
        settings = make_settings(load(stage / _MATRIX), stage)
        files = {str(path): text for path, text in generated.expected(settings).items()}
        return {**files, **generated.right_workflows(settings.matrix)}
    except ReleaseError as error:
        raise ProjectError(f"the generated files cannot be made: {error}") from error
