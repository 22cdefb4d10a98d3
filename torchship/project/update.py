"""`torchship update`: moves a project to this torchship: the archive, and the generated files.

Everything is made and checked in a temporary folder first. The author's files are not touched, nor
is a generated file that the author changed: of that, the difference is shown. The record is
replaced after the files that it lists, and decides which archive counts, so an update that was
stopped leaves a project that works, and the next update finishes it.
"""

import argparse
import difflib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ..release.start import missing_requirements, start
from .archive import make_archive
from .errors import REFUSED, ProjectError
from .facts import read_names
from .record import (
    PATH,
    VendorRecord,
    content_digest,
    read_record,
    replace_file,
    write_record,
)
from .regenerate import regenerate
from .render import File, generated_paths, render_frame


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Move a project to this torchship, or to that of a wheel: the archive in vendor and the "
        "generated files. No file that its author wrote or changed is touched."
    )
    add = parser.add_argument
    add("target", metavar="DIR", nargs="?", type=Path, default=Path(), help="the project (.)")
    add("--torchship", metavar="WHEEL", type=Path, help="take the torchship of this wheel")


def run(options: argparse.Namespace) -> int:
    try:
        if options.torchship is not None:
            return _run_of_wheel(options.torchship, options.target)
        root = options.target.resolve()
        read_record(root)
        if missing_requirements():  # of what follows from a matrix
            start("torchship", options.arguments, root)
        changes = plan(root)
        apply(changes)
    except (ProjectError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    report(changes)
    return 0


def _run_of_wheel(wheel: Path, target: Path) -> int:
    """Runs the update by the torchship of a wheel, which knows its own files."""
    if not wheel.name.startswith("torchship-") or not zipfile.is_zipfile(wheel):
        raise ProjectError(f"{wheel} is not a wheel of torchship; name torchship-VERSION-...whl")
    with TemporaryDirectory(prefix="torchship-update-") as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        program = "import sys; from torchship.command import main; sys.exit(main())"
        command = [sys.executable, "-c", program, "update", str(target.resolve())]
        environment = {**os.environ, "PYTHONPATH": folder}
        return subprocess.run(command, env=environment, check=False).returncode


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What an update does to the project `root`."""

    root: Path
    old: VendorRecord
    new: VendorRecord
    archive: bytes
    written: dict[str, File]  #: by path in the project
    removed: tuple[str, ...]
    kept: dict[str, str]  #: how the author's file differs from the generated one, by its path


def plan(root: Path) -> Changes:
    """The changes, of which nothing is done yet; raises ProjectError for what stops them."""
    old = read_record(root)
    names = read_names(root)
    paths = [*generated_paths(names.folder), *old.generated, str(PATH), f"vendor/{old.archive}"]
    if problems := sorted(set(misplaced(root, paths))):
        raise ProjectError("\n  ".join([f"{root} was not changed:", *problems]))
    with TemporaryDirectory(prefix="torchship-update-") as folder:
        archive = make_archive(Path(folder))
        files = regenerate(root, render_frame(names))
        written = {}
        kept = {}
        generated = {}
        for name in generated_paths(names.folder):
            file = files[name]
            generated[name] = content_digest(file.content)
            path = root / name
            if is_replaceable(path, old.generated.get(name), file.content):
                written[name] = file
            elif not path.is_file() or path.read_bytes() != file.content:
                kept[name] = difference(path, file.content)
                if old.generated.get(name) == "":  # init found the author's, or left it out
                    generated[name] = ""
        dropped = old.generated.keys() - generated.keys()
        removed = [name for name in sorted(dropped) if is_unchanged(root / name, old, name)]
        new = VendorRecord(
            version=archive.name.split("-")[1], archive=archive.name, generated=generated
        )
        # The hash of a kept file is not that of the file, so it stays the author's.
        return Changes(
            root=root,
            old=old,
            new=new,
            archive=archive.read_bytes(),
            written=written,
            removed=tuple(removed),
            kept=kept,
        )


def is_replaceable(path: Path, recorded: str | None, content: bytes) -> bool:
    """Whether an update may write a generated file, and has to."""
    if not path.is_file():
        return recorded is None  # else the author deleted it
    old = path.read_bytes()
    return old != content and recorded == content_digest(old)


def is_unchanged(path: Path, record: VendorRecord, name: str) -> bool:
    return path.is_file() and content_digest(path.read_bytes()) == record.generated[name]


def misplaced(root: Path, names: Iterable[str]) -> Iterator[str]:
    """Links, folders in the place of files, and files in the place of folders."""
    for name in names:
        for parent in list(PurePosixPath(name).parents)[:-1]:
            path = root / parent
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                yield f"{parent}: must be a folder, for {name} of torchship; rename yours"
        path = root / name
        if path.is_symlink() or path.is_dir():
            yield f"{name}: must be a file, which torchship generates; rename yours"


def difference(path: Path, content: bytes) -> str:
    """How the author's file differs from the generated one, as a patch would bring it."""
    if not path.is_file():
        return f"{path.name}: you deleted it\n"
    old = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    new = content.decode().splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, "yours", "generated"))


def apply(changes: Changes) -> None:
    """Writes the files, then the record, which makes the new archive the one that counts."""
    root = changes.root
    for name, file in changes.written.items():
        replace_file(root / name, file.content, mode=file.mode)
    replace_file(root / "vendor" / changes.new.archive, changes.archive)
    write_record(root, changes.new)
    for name in changes.removed:
        (root / name).unlink(missing_ok=True)
    if changes.old.archive != changes.new.archive:
        (root / "vendor" / changes.old.archive).unlink(missing_ok=True)


def report(changes: Changes) -> None:
    for name, patch in changes.kept.items():
        print(f"left as it is, because you changed it: {name}")
        print("".join(f"    {line}" for line in patch.splitlines(keepends=True)))
    versions = f"{changes.old.version} -> {changes.new.version}"
    print(f"{changes.root}: torchship {versions}, {len(changes.written)} generated files written")
    print("`git diff` shows what changed; scripts/build_all.sh host builds with it")
