"""The stand-ins of programs, each a function that takes the words behind its name.

    python -m measurements.rehearsal.programs NAME WORD ...

A program says what the real one would refuse, and ends with 2.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .forge import REPOSITORY, RUN_ID, TOKEN, Forge, Refused, need

#: Stands for the digest of an image.
DIGEST = "sha256:" + "e" * 64


def docker(words: Sequence[str]) -> int:
    """`docker buildx imagetools inspect`: the same digest for every image."""
    if tuple(words[:3]) != ("buildx", "imagetools", "inspect"):
        raise Refused(f"docker {' '.join(words)}: is no command that this stand-in knows")
    print(DIGEST)
    return 0


def gh(words: Sequence[str]) -> int:
    """GitHub's own program: releases, artefacts and signatures, kept in the forge."""
    if os.environ.get("GH_TOKEN") != TOKEN:
        raise Refused("gh: GH_TOKEN is not the token of the workflow")
    options = _gh_parser().parse_args(words)
    forge, permissions = _world()
    run: Callable[[argparse.Namespace, Forge, dict[str, str]], int] = options.run
    return run(options, forge, permissions)


def cibuildwheel(words: Sequence[str]) -> int:
    """`python -m cibuildwheel`: an empty file in the place of a wheel."""
    folder = Path(words[words.index("--output-dir") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stand_in-0-py3-none-any.whl").touch()
    return 0


def pass_tests(words: Sequence[str]) -> int:
    """Tests that pass."""
    return 0


def build_site(words: Sequence[str]) -> int:
    """`scripts/docs.sh`: a site of two pages."""
    for name in ("index.html", "start/index.html"):
        page = Path("build", "site", name)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(name)
    return 0


def _world() -> tuple[Forge, dict[str, str]]:
    world = json.loads(os.environ["REHEARSAL"])
    return Forge(Path(world["forge"]), world["ref"]), world["permissions"]


def _gh_parser() -> argparse.ArgumentParser:
    """The commands of gh that this stand-in knows."""
    parser = argparse.ArgumentParser(prog="gh")
    topics = parser.add_subparsers(required=True)

    auth = topics.add_parser("auth").add_subparsers(required=True)
    auth.add_parser("setup-git").set_defaults(run=lambda *_: 0)

    download = topics.add_parser("run").add_subparsers(required=True).add_parser("download")
    download.add_argument("id")
    download.add_argument("--name", action="append", required=True)
    download.add_argument("--dir", type=Path, required=True)
    download.set_defaults(run=_download_artefacts)

    release = topics.add_parser("release").add_subparsers(required=True)
    create = release.add_parser("create")
    create.add_argument("tag")
    create.add_argument("files", nargs="+", type=Path)
    create.add_argument("--draft", action="store_true")
    create.add_argument("--verify-tag", action="store_true")
    create.add_argument("--title", required=True)
    create.add_argument("--notes-file", type=Path, required=True)
    create.set_defaults(run=_create_release)
    fetch = release.add_parser("download")
    fetch.add_argument("tag")
    fetch.add_argument("--dir", type=Path, required=True)
    fetch.set_defaults(run=_download_release)

    verify = topics.add_parser("attestation").add_subparsers(required=True).add_parser("verify")
    verify.add_argument("file", type=Path)
    verify.add_argument("--repo", required=True)
    verify.add_argument("--source-ref", required=True)
    verify.add_argument("--signer-workflow", required=True)
    verify.set_defaults(run=_verify)
    return parser


def _download_artefacts(
    options: argparse.Namespace, forge: Forge, permissions: dict[str, str]
) -> int:
    need(permissions, "actions", "read", "gh run download")
    if options.id != RUN_ID:
        raise Refused(f"gh run download: {options.id!r} is not this run, {RUN_ID}")
    for name in options.name:
        if not (forge.artefacts / name).is_dir():
            raise Refused(f"gh run download: the run has no artefact {name}")
        shutil.copytree(forge.artefacts / name, options.dir / name)
    return 0


def _create_release(options: argparse.Namespace, forge: Forge, permissions: dict[str, str]) -> int:
    need(permissions, "contents", "write", "gh release create")
    if forge.ref != f"refs/tags/{options.tag}":
        raise Refused(f"gh release create: there is no tag {options.tag!r}")
    folder = forge.release(options.tag)
    if folder.exists():
        raise Refused(f"gh release create: {options.tag} is there already")
    about = {"title": options.title, "notes": options.notes_file.read_text(encoding="utf-8")}
    folder.mkdir(parents=True)
    for path in options.files:
        if not path.is_file() or (folder / path.name).exists():
            raise Refused(f"gh release create: {path} is no file, or there are two of its name")
        shutil.copy(path, folder)
    forge.about(options.tag).write_text(json.dumps(about))
    return 0


def _download_release(
    options: argparse.Namespace, forge: Forge, permissions: dict[str, str]
) -> int:
    need(permissions, "contents", "read", "gh release download")
    folder = forge.release(options.tag)
    if not folder.is_dir():
        raise Refused(f"gh release download: there is no release {options.tag!r}")
    shutil.copytree(folder, options.dir, dirs_exist_ok=True)
    return 0


def _verify(options: argparse.Namespace, forge: Forge, permissions: dict[str, str]) -> int:
    signer = f"{REPOSITORY}/.github/workflows/release.yml"
    if (options.repo, options.signer_workflow) != (REPOSITORY, signer):
        raise Refused(f"gh attestation verify: what signs is {signer} of {REPOSITORY}")
    if not forge.is_signed(options.file, options.source_ref):
        print(f"{options.file} is not signed for {options.source_ref}", file=sys.stderr)
        return 1
    return 0


Program = Callable[[Sequence[str]], int]

#: By the names on PATH; as modules of Python; and as scripts of a repository, which take long.
PROGRAMS: Mapping[str, Program] = {"docker": docker, "gh": gh}
MODULES: Mapping[str, Program] = {"cibuildwheel": cibuildwheel}
SCRIPTS: Mapping[str, Program] = {
    ".ci/run": pass_tests,
    "scripts/docs.sh": build_site,
    "scripts/new_torch.sh": pass_tests,
    "scripts/test.sh": pass_tests,
}


def main(arguments: Sequence[str]) -> int:
    name, *words = arguments
    try:
        return {**PROGRAMS, **MODULES, **SCRIPTS}[name](words)
    except Refused as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
