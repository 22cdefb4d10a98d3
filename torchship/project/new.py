"""`torchship new`: makes the repository of an op, with torchship as one archive in `vendor`."""

import argparse
import dataclasses
import datetime
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .archive import make_archive
from .errors import REFUSED, ProjectError
from .names import why_not
from .record import VendorRecord, content_digest, replace_file, write_record
from .render import SUMMARIES, Names, generated_paths, names_of, render

URL_PATTERN = r"https://[\w.-]+(/[\w.~-]+)*"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Make the repository of a new op, which builds as it is."
    add = parser.add_argument
    add("name", metavar="NAME", help="of the wheels, and with _ for - of the Python package")
    add("target", metavar="DIR", nargs="?", type=Path, help="a new or empty folder (./NAME)")
    template = "rms_norm: kernels for the CPU and CUDA (the default); aten: an op that calls torch"
    add("--template", choices=sorted(SUMMARIES), default="rms_norm", help=template)
    add("--author", help="your name, for LICENSE, CITATION.cff and pyproject.toml")
    add("--url", help="of the repository, such as https://github.com/you/my-op")


def run(options: argparse.Namespace) -> int:
    try:
        target = Path(options.target or options.name)
        check_request(options.name, target, options.author, options.url)
        new_project(
            target,
            options.template,
            _names(options.name, options.template, options.author, options.url),
        )
    except (ProjectError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    print(f"{target}: {options.name}, with torchship in {target}/vendor")
    print(f"its operator is an example for you to replace: {SUMMARIES[options.template]}")
    print(f"commit it, then: cd {target}; scripts/build_all.sh host; scripts/test.sh")
    return 0


def check_request(name: str, target: Path, author: str | None, url: str | None) -> None:
    """Raises ProjectError for what cannot be made."""
    if reason := why_not(name):
        raise ProjectError(f"NAME is {name!r}, which {reason}; choose another NAME")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ProjectError(f"{target} must be a folder, or must not exist; name another DIR")
    if target.is_dir() and any(target.iterdir()):
        raise ProjectError(f"{target} must be empty, or must not exist; name another DIR")
    if author is not None and not re.fullmatch(r"[^\"\\#{}\s](?:[^\"\\#{}\n\r\t]*\S)?", author):
        raise ProjectError(
            f'--author is {author!r}, but a name has no quotes ("), \\, #, braces or line breaks, '
            "and begins and ends with no space; write it without them"
        )
    if url is not None and not re.fullmatch(URL_PATTERN, url):
        raise ProjectError(
            f"--url is {url!r}, but must be the https address of the repository; "
            "write it as https://github.com/you/my-op"
        )
    if shutil.which("git") is None:
        raise ProjectError("a project is a git repository, but there is no git; install git")


def _names(name: str, template: str, author: str | None, url: str | None) -> Names:
    names = names_of(name)
    return dataclasses.replace(
        names,
        author=author or names.author,
        url=url or f"https://example.org/{names.distribution}",
        year=str(datetime.datetime.now(datetime.timezone.utc).year),
        summary=SUMMARIES[template],
    )


def new_project(target: Path, template: str, names: Names) -> None:
    """Writes the project into the new or empty folder `target`, and adds its files to git."""
    with TemporaryDirectory(prefix="torchship-new-") as folder:
        root = Path(folder, "project")
        for name, file in render(template, names).items():
            replace_file(root / name, file.content, mode=file.mode)
        archive = make_archive(root / "vendor")
        generated = {
            name: content_digest((root / name).read_bytes())
            for name in generated_paths(names.folder)
        }
        record = VendorRecord(
            version=archive.name.split("-")[1],
            archive=archive.name,
            generated=generated,
        )
        write_record(root, record)
        shutil.copytree(root, target, dirs_exist_ok=True)
    _git(target, "init", "-q", "-b", "main")
    # By force, since a user's own patterns may ignore wheels.
    _git(target, "add", "--all", "--force")


def _git(target: Path, *arguments: str) -> None:
    command = ["git", "-C", str(target), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise ProjectError(
            f"git {arguments[0]} in {target} failed: {result.stderr.strip()}; "
            "the files are there: run git init and git add yourself"
        )
