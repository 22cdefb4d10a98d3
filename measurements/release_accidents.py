"""Draws accidents of a release by seed; none may certify, lose or replace anything in silence.

    python measurements/release_accidents.py [--seed N] [--count N]

Small shards of two platforms are made once, with real shared objects. Each accident is one to
three mishaps (`KINDS`); then the shards are merged, the release is gathered, and the result is
uploaded to a folder and, as a dry run, to PyPI. The program knows what it did: a mishap that
spoils files must be refused with a text that names the thing, and after any other, all true files
must have arrived with their bytes, and the wheel must be called whole or partial as it is.

Needs gcc, twine and rattler; results: measurements/results/release_accidents.json.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import shutil
import subprocess
import sys
import tarfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock
from zipfile import ZIP_STORED, ZipFile

REPO = Path(__file__).resolve().parents[1]
HELPERS = ("torchship/doctor", "torchship/release", "torchship")
sys.path[:0] = [str(REPO / "tests" / name) for name in HELPERS]
sys.path.append(str(REPO))  # behind the installed package

import zstandard  # noqa: E402
from rich.console import Console  # noqa: E402
from shared_objects import shared_object  # noqa: E402
from small_releases import TORCH_SYMBOLS, make_manifest, record_of  # noqa: E402
from small_wheels import Shape, make_sdist, make_wheel  # noqa: E402

from measurements import storage  # noqa: E402
from torchship.release import ReleaseError, conda_steps, conda_worker  # noqa: E402
from torchship.release import __main__ as command_line  # noqa: E402
from torchship.release import upload as uploading  # noqa: E402
from torchship.release.cells import Cell, all_cells  # noqa: E402
from torchship.release.manifest import parse  # noqa: E402
from torchship.release.matrix import load  # noqa: E402
from torchship.release.merge import merge  # noqa: E402
from torchship.release.pack_steps import true_tag  # noqa: E402
from torchship.release.paths import publish  # noqa: E402
from torchship.release.settings import Settings, make_settings  # noqa: E402
from torchship.release.shell import Log  # noqa: E402
from torchship.release.wheels import Wheel, read_wheel  # noqa: E402

RESULTS = storage.RESULTS / "release_accidents.json"
PLATFORMS = ("linux-x86_64", "linux-aarch64")
SHARDS = 3
AARCH64 = (183).to_bytes(2, "little")  # e_machine of an ELF header
LIB = "lltm_conda/lib"
SDIST = "lltm-0.1.0.tar.gz"
LLTM = Shape(distribution="lltm", package="lltm_conda")
STEPS = ("gather", "folder", "pypi")


# What a release is made of.


def make_objects(
    cells: Sequence[Cell], folder: Path, origin: Mapping[str, str] | None = None
) -> dict[str, bytes]:
    """A small shared object for each file of the cells.

    `origin` has the fields of a record that say of which version and commit it is.
    """
    objects = {}
    for cell in cells:
        for name in cell.files:
            symbols = [TORCH_SYMBOLS[int(name[-4])]] if name.startswith("glue-aten") else []
            path = shared_object(
                folder / name,
                record=record_of(name, shape=LLTM, platform=cell.platform, **(origin or {})),
                undefined=symbols,
                flags=["-nostdlib", "-Wl,-z,max-page-size=65536"],
            )
            data = path.read_bytes()
            if cell.machine == "aarch64":
                data = data[:18] + AARCH64 + data[20:]
            objects[name] = data
    return objects


def make_package(
    path: Path,
    objects: dict[str, bytes],
    others: dict[str, bytes] | None = None,
    unlisted: dict[str, bytes] | None = None,
) -> None:
    """A conda package with these binaries, and with other files, listed or not."""
    files = {f"site-packages/{LIB}/{name}": data for name, data in objects.items()}
    files |= {
        "site-packages/lltm_conda/__init__.py": b"",
        "site-packages/lltm-0.1.0.dist-info/METADATA": LLTM.metadata_of("0.1.0"),
        **(others or {}),
    }
    entries = [
        {
            "_path": name,
            "path_type": "hardlink",
            "sha256": hashlib.sha256(data).hexdigest(),
            "size_in_bytes": len(data),
        }
        for name, data in files.items()
    ]
    files |= unlisted or {}
    info = {"info/paths.json": json.dumps({"paths": entries, "paths_version": 1}).encode()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(path, "w", ZIP_STORED) as archive:
        archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
        for kind, content in (("pkg", files), ("info", info)):
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as inner:
                for name, data in content.items():
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    inner.addfile(member, io.BytesIO(data))
            packed = zstandard.ZstdCompressor().compress(buffer.getvalue())
            archive.writestr(f"{kind}-{path.stem}.tar.zst", packed)


def write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def list_again(dist: Path, only: str | None = None) -> None:
    """Writes the hashes of files as they lie in a folder into its manifest, as a forger would."""
    manifest = read_json(dist / "manifest.json")
    for artefact in manifest["artefacts"]:
        path = dist / artefact["path"]
        if only in (None, artefact["path"]) and path.is_file():
            data = path.read_bytes()
            artefact |= {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    write_json(dist / "manifest.json", manifest)


def finish_shard(
    shard: Path, cells: Sequence[Cell], settings: Settings, objects: Mapping[str, bytes]
) -> None:
    """Gives the wheels of a shard their true tags, adds conda packages, and lists them."""
    manifest = read_json(shard / "manifest.json")
    for cell in cells:
        entry = manifest["cells"][cell.name]
        old = shard / entry["wheel"]
        wheel = read_wheel(old)
        tagged = wheel.renamed(local=cell.local_version, tag=true_tag(wheel, settings.machine))
        old.unlink()
        path = tagged.write(old.parent, epoch=1_700_000_000)
        package = f"channel/{settings.subdir}/lltm-0.1.0-{cell.variant}_0.conda"
        make_package(shard / package, {name: objects[name] for name in cell.files})
        for artefact in manifest["artefacts"]:
            if artefact["path"] == entry["wheel"]:
                artefact["path"] = path.relative_to(shard).as_posix()
        entry["wheel"] = path.relative_to(shard).as_posix()
        entry["conda"] = package
        manifest["artefacts"].append(
            {
                "path": package,
                "kind": "conda",
                "sha256": "0" * 64,
                "size": 0,
                "cells": [cell.name],
            }
        )
    write_json(shard / "manifest.json", manifest)
    list_again(shard)


class Plant:
    """The shards of both platforms as undisturbed runs leave them, and their merged folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.sdist = make_sdist(folder / SDIST, shape=LLTM).read_bytes()
        self.settings: dict[str, Settings] = {}
        self.objects: dict[str, dict[str, bytes]] = {}
        for platform in PLATFORMS:
            self._make(platform)

    def _make(self, platform: str) -> None:
        whole = load(REPO / "build_matrix.yaml", platform)
        minors = {whole.stable.built_with, whole.stable.headers, "2.4"}
        matrix = whole.model_copy(
            update={"torch": {k: v for k, v in whole.torch.items() if k in minors}, "tools": []}
        )
        matrix._platform = platform
        settings = replace(make_settings(matrix, REPO), native=platform)
        assert settings.platform == platform
        self.settings[platform] = settings
        cells = all_cells(matrix)
        objects = make_objects(cells, self.folder / "objects" / platform)
        self.objects[platform] = objects
        for number in range(SHARDS):
            own = cells[number::SHARDS]
            shard = self.shard(platform, number)
            make_manifest(shard, matrix, {c.name: "done" for c in own}, objects, shape=LLTM)
            (shard / SDIST).write_bytes(self.sdist)
            finish_shard(shard, own, settings, objects)
        scene = Scene(self, platform, self.folder / "merged" / platform, random.Random(0))
        merge_shards(scene)
        shutil.copytree(scene.dist, self.dist(platform), symlinks=True)

    def shard(self, platform: str, number: int) -> Path:
        return self.folder / "shards" / platform / str(number)

    def dist(self, platform: str) -> Path:
        return self.folder / "dist" / platform


@dataclass
class Scene:
    """One release under way. `dropped` are the cells that honestly did not arrive."""

    plant: Plant
    platform: str
    folder: Path
    rng: random.Random
    shards: list[Path] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    optional: dict[str, bool] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    index: str | None = None

    def __post_init__(self) -> None:
        for number in range(SHARDS):
            target = self.folder / "shards" / str(number)
            shutil.copytree(self.plant.shard(self.platform, number), target)
            self.shards.append(target)
        self.cells = all_cells(self.plant.settings[self.platform].matrix)
        self.settings = replace(
            self.plant.settings[self.platform],
            repo=self.folder,
            build=self.folder / "build",
            dist=self.folder / "dist",
        )

    @property
    def dist(self) -> Path:
        return self.folder / "dist"

    @property
    def public(self) -> Path:
        return self.folder / "public"

    @property
    def other(self) -> str:
        return next(platform for platform in PLATFORMS if platform != self.platform)

    @property
    def other_dist(self) -> Path:
        """The merged folder of the other platform, copied when it is first needed."""
        path = self.folder / "other"
        if not path.exists():
            shutil.copytree(self.plant.dist(self.other), path)
        return path

    def draw_shard(self) -> Path:
        """A shard that is there and whole enough to be changed."""
        return self.rng.choice([s for s in self.shards if (s / "manifest.json").is_file()])

    def draw_cell(self, shard: Path) -> str:
        names: list[str] = sorted(read_json(shard / "manifest.json")["cells"])
        return self.rng.choice(names)

    def cell(self, name: str) -> Cell:
        return next(cell for cell in self.cells if cell.name == name)


@dataclass(frozen=True)
class Mishap:
    """What was done, which steps must refuse it, and the words of which one names it."""

    refused_by: frozenset[str]
    names: tuple[str, ...] = ()
    may_refuse: frozenset[str] = frozenset()


def spoils_merge(*names: str) -> Mishap:
    return Mishap(frozenset({"merge"}), names)


def harmless(*names: str, may_refuse: Sequence[str] = ()) -> Mishap:
    return Mishap(frozenset(), names, frozenset(may_refuse))


def stops(steps: Sequence[str], *names: str) -> Mishap:
    return Mishap(frozenset(steps), names)


# Mishaps before the merge.


def lose_a_shard(scene: Scene) -> Mishap:
    if len(scene.shards) == 1:
        return harmless()
    shard = scene.draw_shard()
    scene.shards.remove(shard)
    scene.dropped |= {*read_json(shard / "manifest.json")["cells"]}
    return harmless("partial", may_refuse=["pypi"])


def name_a_shard_twice(scene: Scene) -> Mishap:
    shard = scene.draw_shard()
    twin = scene.folder / "twin"
    if scene.rng.random() < 0.5 and not twin.exists():
        shutil.copytree(shard, twin)
        shard = twin
    scene.shards.append(shard)
    return harmless()


def name_no_shard(scene: Scene) -> Mishap:
    scene.shards.append(scene.folder / "nowhere")
    return spoils_merge("nowhere")


def take_another_shard(scene: Scene) -> Mishap:
    """A shard of the other platform."""
    number = scene.rng.randrange(SHARDS)
    target = scene.folder / "foreign"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(scene.plant.shard(scene.other, number), target)
    scene.shards.append(target)
    return spoils_merge("foreign", scene.other.removeprefix("linux-"))


def change_field(scene: Scene) -> Mishap:
    """A field of a shard's manifest that tells of another build."""
    shard = scene.draw_shard()
    name, value = scene.rng.choice(
        [
            ("commit", "d" * 40),
            ("version", "9.9.9"),
            ("package", "other"),
            ("sources", "0" * 64),
            ("total", 3),
            ("changed", "during the run, HEAD moved"),
            ("schema", 2),
        ]
    )
    manifest = read_json(shard / "manifest.json")
    write_json(shard / "manifest.json", {**manifest, name: value})
    if name == "sources" and len({*scene.shards}) == 1:
        return harmless()  # there is no other shard that has other sources
    return spoils_merge(name, "HEAD moved")


def forge_certificate(scene: Scene) -> Mishap:
    """All cells are said to be optional, and the cells of a lost shard not to be missing."""
    for shard in scene.shards:
        manifest = read_json(shard / "manifest.json")
        manifest["optional"] = [cell.name for cell in scene.cells]
        manifest["missing"] = {}
        write_json(shard / "manifest.json", manifest)
    lose_a_shard(scene)
    return harmless("partial", "optional", may_refuse=["merge", "pypi"])


def change_a_file(scene: Scene) -> Mishap:
    """Other, torn, empty or no bytes in the place of a listed file."""
    shard = scene.draw_shard()
    path = scene.rng.choice(read_json(shard / "manifest.json")["artefacts"])["path"]
    damage(scene.rng, shard / path)
    return spoils_merge(path)


def damage(rng: random.Random, path: Path) -> None:
    data = path.read_bytes() if path.is_file() else b""
    match rng.randrange(4):
        case 0:
            path.unlink(missing_ok=True)
        case 1:
            path.write_bytes(data[: len(data) // 2])
        case 2:
            path.write_bytes(b"")
        case _:
            path.write_bytes(data + b"x")


def tear_a_manifest(scene: Scene) -> Mishap:
    path = scene.draw_shard() / "manifest.json"
    damage(scene.rng, path)
    return spoils_merge("manifest")


def fail_a_cell(scene: Scene) -> Mishap:
    """A cell that failed before its wheel was packed."""
    shard = scene.draw_shard()
    name = scene.draw_cell(shard)
    manifest = read_json(shard / "manifest.json")
    entry = manifest["cells"][name]
    entry |= {"state": "failed", "reason": "glue: no", "wheel": None, "conda": None}
    kept = [a for a in manifest["artefacts"] if a["cells"] != [name]]
    write_json(shard / "manifest.json", {**manifest, "artefacts": kept})
    scene.dropped.add(name)
    if scene.cell(name).optional:
        return harmless(name, "partial", may_refuse=["pypi"])
    return Mishap(frozenset({"folder", "pypi"}), (name, "partial"))


def fail_a_packed_cell(scene: Scene) -> Mishap:
    """A cell whose run failed after its wheel and its conda package were packed."""
    shard = scene.draw_shard()
    name = scene.draw_cell(shard)
    manifest = read_json(shard / "manifest.json")
    entry = manifest["cells"][name]
    entry |= {"state": "failed", "reason": "venv: wrong results"}
    write_json(shard / "manifest.json", manifest)
    if len({*map(str, scene.shards)}) > SHARDS or name not in {cell.name for cell in scene.cells}:
        return harmless(name, "partial", may_refuse=["merge", "folder", "pypi"])
    scene.dropped.add(name)
    if scene.cell(name).optional:
        return harmless(name, "partial", may_refuse=["pypi"])
    return Mishap(frozenset({"folder", "pypi"}), (name, "partial"))


def list_a_foreign_file(scene: Scene) -> Mishap:
    """A conda package or a wheel that no cell made."""
    shard = scene.draw_shard()
    kind, path = scene.rng.choice(
        [
            ("conda", f"channel/{scene.settings.subdir}/evil-1-0.conda"),
            ("thin", "simple/lltm/evil-1.0-py3-none-any.whl"),
            ("sdist", "evil-1.0.tar.gz"),
        ]
    )
    (shard / path).parent.mkdir(parents=True, exist_ok=True)
    (shard / path).write_bytes(b"evil")
    manifest = read_json(shard / "manifest.json")
    cell = scene.draw_cell(shard)
    entry = {"path": path, "kind": kind, "sha256": "0" * 64, "size": 4, "cells": [cell]}
    manifest["artefacts"].append(entry)
    write_json(shard / "manifest.json", manifest)
    list_again(shard, path)
    return spoils_merge("evil")


def add_an_unlisted_file(scene: Scene) -> Mishap:
    shard = scene.draw_shard()
    path = shard / scene.rng.choice(["simple/lltm/evil-1.0-py3-none-any.whl", "evil-1.0.tar.gz"])
    path.write_bytes(b"evil")
    return harmless()


def share_an_entry(scene: Scene) -> Mishap:
    """Every cell says that it made the one wheel of another."""
    shard = scene.draw_shard()
    manifest = read_json(shard / "manifest.json")
    entry = manifest["cells"][scene.draw_cell(shard)]
    if entry["wheel"] is None:
        return harmless()
    write_json(
        shard / "manifest.json",
        {**manifest, "cells": {cell.name: entry for cell in scene.cells}},
    )
    return spoils_merge(entry["wheel"], "belongs to no cell")


def point_elsewhere(scene: Scene) -> Mishap:
    """A path of a manifest that leads out, or over another file of the release."""
    shard = scene.draw_shard()
    manifest = read_json(shard / "manifest.json")
    cell = scene.draw_cell(shard)
    name = scene.rng.choice(["wheel", "conda", "log", "artefact"])
    path = scene.rng.choice(
        [
            "../../outside.txt",
            "/etc/hostname",
            "a/../../b",
            "",
            "\0",
            "a\nb",
            "manifest.json",
            "report.html",
            "simple/index.html",
            "lltm-0.1.0.tar.gz",
            "simple/lltm/evil-1.0-py3-none-any.whl",
            "logs/../logs/evil.log",
            "Ωx y'$(id).log",
        ]
    )
    if name == "artefact":
        scene.rng.choice(manifest["artefacts"])["path"] = path
    else:
        manifest["cells"][cell][name] = path
    target = shard / path.replace("\0", "x")
    if ".." not in path and path and path[0] != "/" and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"evil")
    write_json(shard / "manifest.json", manifest)
    if "\0" not in path:
        list_again(shard, path)
    return spoils_merge(path, repr(path), "lie in the manifest's folder", "belongs to no cell")


def log_over_a_file(scene: Scene) -> Mishap:
    """The log of a cell is called like a wheel of another shard, and has other bytes."""
    shard = scene.draw_shard()
    manifest = read_json(shard / "manifest.json")
    victim = scene.rng.choice(scene.cells)
    number = scene.cells.index(victim) % SHARDS
    source = scene.plant.shard(scene.platform, number)
    wheel = read_json(source / "manifest.json")["cells"][victim.name]["wheel"]
    path = scene.rng.choice([wheel, f"logs/{victim.name}.log"])
    cell = scene.draw_cell(shard)
    if cell == victim.name and path.startswith("logs/"):
        return harmless()
    manifest["cells"][cell]["log"] = path
    if not (shard / path).exists():
        (shard / path).write_bytes(b"evil")
    write_json(shard / "manifest.json", manifest)
    return spoils_merge(path)


def link_a_file(scene: Scene) -> Mishap:
    """A log or a wheel that is a link out of the folder."""
    shard = scene.draw_shard()
    entry = read_json(shard / "manifest.json")["cells"][scene.draw_cell(shard)]
    path = shard / (entry[scene.rng.choice(["log", "wheel"])] or entry["log"])
    secret = scene.folder / "secret"
    secret.write_bytes(path.read_bytes() if path.is_file() else b"")
    path.unlink(missing_ok=True)
    path.symlink_to(secret)
    return spoils_merge(path.name)


def move_a_file(scene: Scene) -> Mishap:
    """A wheel or a package at another place of the folder, as the manifest says."""
    shard = scene.draw_shard()
    manifest = read_json(shard / "manifest.json")
    entry = manifest["cells"][scene.draw_cell(shard)]
    kind = scene.rng.choice(["wheel", "conda"])
    old = entry[kind]
    if old is None or not (shard / old).is_file():
        return harmless()
    folder = scene.rng.choice(["elsewhere", "simple/other", "channel/linux-riscv64"])
    new = f"{folder}/{Path(old).name}"
    (shard / folder).mkdir(parents=True, exist_ok=True)
    (shard / old).rename(shard / new)
    entry[kind] = new
    for artefact in manifest["artefacts"]:
        if artefact["path"] == old:
            artefact["path"] = new
    write_json(shard / "manifest.json", manifest)
    return spoils_merge(new, old)


def has_nothing_to_merge(scene: Scene) -> bool:
    """Whether no shard has a wheel of a cell that did not fail, as far as they can be read."""
    try:
        manifests = [read_json(shard / "manifest.json") for shard in scene.shards]
        entries = [entry for manifest in manifests for entry in manifest["cells"].values()]
        return not any(entry["wheel"] and entry["state"] != "failed" for entry in entries)
    except (OSError, ValueError, KeyError):
        return False


def usable_wheel(shard: Path, entry: dict[str, Any]) -> Wheel | None:
    """The wheel of a cell; None if the cell failed, or if a mishap before spoiled the wheel."""
    try:
        return read_wheel(shard / str(entry["wheel"])) if entry["state"] != "failed" else None
    except ReleaseError:
        return None


def repack_a_wheel(scene: Scene) -> Mishap:
    """A wheel with other content, whose new hashes are listed."""
    shard = scene.draw_shard()
    manifest = read_json(shard / "manifest.json")
    name = scene.draw_cell(shard)
    entry = manifest["cells"][name]
    wheel = usable_wheel(shard, entry)
    if wheel is None:
        return harmless()
    files = dict(wheel.files)
    info = dict(wheel.info)
    victim = scene.rng.choice(sorted(wheel.binaries))
    match scene.rng.randrange(7):
        case 0:  # of another commit
            files[victim] = files[victim].replace(b"c" * 40, b"d" * 40)
        case 1:
            files[victim] = b"no object"
        case 2:  # at another place
            files[f"lltm_conda/{Path(victim).name}"] = files.pop(victim)
        case 3:
            del files[victim]
        case 4:
            files["lltm_conda/evil.py"] = b"print('evil')"
        case 5:
            files["lltm_conda/lib/evil.bin"] = b"evil"
        case _:
            info["entry_points.txt"] = b"[console_scripts]\nls = evil:main\n"
    wheel._replace(files=files, info=info).write(
        (shard / entry["wheel"]).parent, epoch=1_700_000_000
    )
    for file in entry["binaries"]:
        if data := files.get(f"{LIB}/{file}"):
            manifest["binaries"][file]["sha256"] = hashlib.sha256(data).hexdigest()
    write_json(shard / "manifest.json", manifest)
    list_again(shard, entry["wheel"])
    return spoils_merge(Path(victim).name, name, entry["wheel"], "METADATA", "evil", "entry_points")


def repack_a_package(scene: Scene) -> Mishap:
    """A conda package with other binaries, whose new hash is listed."""
    shard = scene.draw_shard()
    name = scene.draw_cell(shard)
    entry = read_json(shard / "manifest.json")["cells"][name]
    is_foreign = name not in {cell.name for cell in scene.cells}
    if entry["conda"] is None or entry["state"] == "failed" or is_foreign:
        return harmless()
    files = scene.cell(name).files
    objects = {file: scene.plant.objects[scene.platform][file] for file in files}
    others: dict[str, bytes] = {}
    unlisted: dict[str, bytes] = {}
    match scene.rng.randrange(7):
        case 0:
            objects[files[0]] += b"other"
        case 1:
            del objects[files[0]]
        case 2:
            objects |= scene.plant.objects[scene.other]
        case 3:
            others["site-packages/lltm_conda/evil.py"] = b"evil"
        case 4:
            others["bin/.lltm-post-link.sh"] = b"evil"
        case 5:
            objects["libevil.so.1"] = b"evil"
        case _:
            unlisted[f"site-packages/{LIB}/{files[0]}"] = b"evil"
    make_package(shard / entry["conda"], objects, others, unlisted)
    if scene.rng.random() < 0.2:
        (shard / entry["conda"]).write_bytes(b"no package")
    list_again(shard, entry["conda"])
    return spoils_merge(Path(entry["conda"]).name)


def repack_the_sources(scene: Scene) -> Mishap:
    """A source distribution with other files, in one shard or in all, whose hash is listed."""
    shards = scene.shards if scene.rng.random() < 0.5 else [scene.draw_shard()]
    folder = scene.folder / "sources"
    folder.mkdir(exist_ok=True)
    name, data = scene.rng.choice(
        [
            ("lltm_conda/source.json", b'{"commit": "d", "epoch": ""}'),
            ("PKG-INFO", LLTM.metadata_of("9.9.9")),
            ("lltm_conda/__init__.py", b"evil"),
            ("../evil", b"evil"),
        ]
    )
    sources = make_sdist(folder / SDIST, {name: data}, shape=LLTM).read_bytes()
    for shard in shards:
        if (shard / "manifest.json").is_file():
            (shard / SDIST).write_bytes(sources)
            list_again(shard, SDIST)
    return spoils_merge(SDIST, "source distribution")


def build_again(scene: Scene) -> Mishap:
    """A second shard has the same cell with other bytes."""
    shard = scene.draw_shard()
    twin = scene.folder / "again"
    if twin.exists():
        return harmless()
    shutil.copytree(shard, twin, symlinks=True)
    manifest = read_json(twin / "manifest.json")
    path = twin / scene.rng.choice(manifest["artefacts"])["path"]
    if not path.is_file():
        return harmless()
    path.write_bytes(path.read_bytes() + b"\0")
    list_again(twin, path.relative_to(twin).as_posix())
    scene.shards.append(twin)
    return spoils_merge(path.name)


def change_a_host(scene: Scene) -> Mishap:
    """Two shards know other facts of one machine."""
    shard = scene.draw_shard()
    manifest = read_json(shard / "manifest.json")
    if len({*map(str, scene.shards)}) == 1:
        return harmless()
    manifest["hosts"]["h"]["compiler"] = "evil 1.0"
    write_json(shard / "manifest.json", manifest)
    return spoils_merge("host h", "machine h")


def leave_changes(scene: Scene) -> Mishap:
    """A shard that was built from changes that are not committed."""
    shard = scene.draw_shard()
    manifest = read_json(shard / "manifest.json")
    write_json(shard / "manifest.json", {**manifest, "clean": False})
    return stops(["folder", "pypi"], "not committed")


def find_an_old_dist(scene: Scene) -> Mishap:
    """The folder holds what an earlier, half done merge left."""
    source = scene.plant.dist(scene.platform)
    if scene.dist.exists() or not source.exists():
        return harmless()
    shutil.copytree(source, scene.dist)
    for path in sorted(scene.dist.rglob("*")):
        if path.is_file() and scene.rng.random() < 0.3:
            damage(scene.rng, path)
    make_wheel(scene.dist, {}, version="0.0.9", shape=LLTM)
    (scene.dist / "simple" / "lltm" / ".x.whl.part").write_bytes(b"half")
    # A wheel of a cell that this merge lacks stays there, unlisted.
    return harmless("is not in its manifest", may_refuse=["gather"])


# Mishaps between the merge and the release.


def change_a_merged_file(scene: Scene) -> Mishap:
    manifest = parse(scene.dist / "manifest.json")
    artefact = scene.rng.choice(manifest.artefacts)
    path = scene.dist / artefact.path
    if scene.rng.random() < 0.3 and path.is_file():
        copy = scene.folder / f"moved-{scene.rng.randrange(10**9)}"
        path.rename(copy)
        path.symlink_to(copy)  # a link to the same bytes
        return harmless(artefact.path, may_refuse=STEPS)
    damage(scene.rng, path)
    uploaded = "pypi" if artefact.kind in ("fat", "sdist") else "folder"
    return stops(["gather", uploaded], path.name)


def add_to_the_merged_files(scene: Scene) -> Mishap:
    folder, name = scene.rng.choice(
        [
            ("", "evil-1.0-py3-none-any.whl"),
            ("", "lltm-0.1.0-py3-none-manylinux_2_99_x86_64.whl"),
            ("simple/lltm/", "evil\n-1.0-py3-none-any.whl"),
            ("", "evil-1.0.tar.gz"),
            (f"channel/{scene.settings.subdir}/", "evil-1-0.conda"),
            ("channel/linux-riscv64/", "evil-1-0.conda"),
        ]
    )
    path = scene.dist / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"evil")
    return stops(["gather"], name, name.replace("\n", "\\n"), repr(name))


def forge_the_fat_wheel(scene: Scene) -> Mishap:
    """A wheel of that name with other content, whose hash is listed."""
    fat = parse(scene.dist / "manifest.json").fat
    assert fat is not None
    path = scene.dist / fat.path
    try:
        wheel = read_wheel(path)
    except ReleaseError:
        return harmless()
    files = dict(wheel.files)
    victim = scene.rng.choice(sorted(wheel.binaries))
    match scene.rng.randrange(4):
        case 0:
            files[victim] += b"other"
        case 1:
            del files[victim]
        case 2:
            files[f"{LIB}/kernels-evil.so"] = files[victim]
        case _:
            files[f"lltm_conda/{Path(victim).name}"] = files.pop(victim)
    path.unlink()
    wheel._replace(files=files).write(scene.dist, epoch=1_700_000_000)
    list_again(scene.dist, fat.path)
    return stops(["pypi"], path.name, Path(victim).name, "kernels-evil.so")


def call_a_partial_wheel_whole(scene: Scene) -> Mishap:
    manifest = read_json(scene.dist / "manifest.json")
    fat = next(a for a in manifest["artefacts"] if a["kind"] == "fat")
    path = scene.dist / fat["path"]
    try:
        wheel = read_wheel(path)
    except ReleaseError:
        return harmless()
    optional = {name for cell in scene.cells if cell.optional for name in cell.files}
    required = {name for cell in scene.cells if not cell.optional for name in cell.files}
    lost = sorted(required - optional)[0]
    files = {name: data for name, data in wheel.files.items() if Path(name).name != lost}
    path.unlink()
    whole = wheel._replace(files=files).renamed(local=None)
    fat["path"] = whole.write(scene.dist, epoch=1_700_000_000).name
    manifest["missing"] = {}
    write_json(scene.dist / "manifest.json", manifest)
    list_again(scene.dist, fat["path"])
    return stops(["pypi"], fat["path"], lost)


def swap_platforms(scene: Scene) -> Mishap:
    scene.sources = {scene.platform: "other", scene.other: "dist"}
    return stops(["gather"], "other", "dist")


def gather_one_twice(scene: Scene) -> Mishap:
    scene.sources = {scene.platform: "dist", scene.other: "dist"}
    return stops(["gather"], "dist")


def gather_another_commit(scene: Scene) -> Mishap:
    name, value = scene.rng.choice([("commit", "d" * 40), ("version", "9.9.9")])
    path = scene.other_dist / "manifest.json"
    write_json(path, {**read_json(path), name: value})
    return stops(["gather"], name)


def gather_other_sources(scene: Scene) -> Mishap:
    """Both platforms have a source distribution of one name, with other bytes."""
    (scene.other_dist / "lltm-0.1.0.tar.gz").write_bytes(b"other sources")
    list_again(scene.other_dist, "lltm-0.1.0.tar.gz")
    return stops(["gather"], "lltm-0.1.0.tar.gz")


def gather_an_empty_name(scene: Scene) -> Mishap:
    """A variable that is not set, in the place of a folder."""
    scene.sources = {scene.platform: "dist", scene.other: ""}
    return stops(["gather"], scene.other)


# Mishaps where the files go.


def find_other_bytes(scene: Scene) -> Mishap:
    """The folder has a file of a name that is uploaded, with other bytes."""
    artefacts = parse(scene.dist / "manifest.json").artefacts
    artefact = scene.rng.choice([a for a in artefacts if a.kind in ("thin", "conda")])
    path = scene.public / artefact.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return harmless(may_refuse=["folder"])
    match scene.rng.randrange(3):
        case 0:
            path.write_bytes(b"the file that users have")
        case 1:
            path.mkdir()
        case _:
            other = scene.folder / "users"
            other.write_bytes(b"the file that users have")
            path.symlink_to(other)
    return stops(["folder"], artefact.path)


def upload_half(scene: Scene) -> Mishap:
    """An earlier upload to the folder ended in the middle."""
    for artefact in parse(scene.dist / "manifest.json").artefacts:
        path = scene.public / artefact.path
        source = scene.dist / artefact.path
        is_drawn = artefact.kind in ("thin", "conda") and scene.rng.random() < 0.5
        if is_drawn and source.is_file() and not path.exists():
            publish(source, path)
    (scene.public / "simple" / "lltm").mkdir(parents=True, exist_ok=True)
    (scene.public / "simple" / "lltm" / ".x.whl.part").write_bytes(b"half")
    # After a mishap that changed a merged file, what was uploaded is that file.
    return harmless(may_refuse=["folder"])


def answer_of_the_index(scene: Scene) -> Mishap:
    """PyPI has files of this version: the same, others, or it answers with no JSON."""
    artefacts = [
        a for a in parse(scene.dist / "manifest.json").artefacts if a.kind in ("fat", "sdist")
    ]
    artefact = scene.rng.choice(artefacts)
    kind = scene.rng.choice(["same", "other", "torn", "unreachable"])
    sha256 = artefact.sha256 if kind == "same" else "0" * 64
    urls = [{"filename": Path(artefact.path).name, "digests": {"sha256": sha256}}]
    answer = scene.folder / "index.json"
    write_json(answer, {"urls": urls})
    if kind == "torn":
        answer.write_text("<html>")
    scene.index = answer.as_uri() if kind != "unreachable" else "file:///nowhere.json"
    if kind == "same":
        return harmless()
    return stops(["pypi"], artefact.path, "index.json", "nowhere.json")


# Mishaps of the command line.


def leave_a_variable_empty(scene: Scene) -> Mishap:
    option = scene.rng.choice(
        ["--merge", "--upload", "--shard", "--recipe", "--channel", "--python"]
    )
    value = scene.rng.choice(["", " "])
    console = Console(file=io.StringIO(), width=300)
    with (
        mock.patch.object(command_line, "console", console),
        mock.patch.object(command_line, "run_for_platform", side_effect=AssertionError("it ran")),
        mock.patch.object(command_line, "merge", side_effect=AssertionError("it merged")),
        mock.patch("signal.signal"),
    ):
        code = command_line.main([option, value])
    assert code == 2, f"{option} {value!r} gave {code}"
    assert f"{option}: got an empty" in console.file.getvalue(), f"{option} is not named"  # type: ignore[attr-defined]
    return harmless()


# In the order in which they happen, so that none undoes what one before it did.
BEFORE: tuple[Callable[[Scene], Mishap], ...] = (
    leave_a_variable_empty,
    find_an_old_dist,
    lose_a_shard,
    forge_certificate,
    fail_a_cell,
    fail_a_packed_cell,
    leave_changes,
    name_a_shard_twice,
    name_no_shard,
    take_another_shard,
    change_field,
    change_a_file,
    list_a_foreign_file,
    add_an_unlisted_file,
    share_an_entry,
    point_elsewhere,
    log_over_a_file,
    link_a_file,
    move_a_file,
    repack_a_wheel,
    repack_a_package,
    repack_the_sources,
    build_again,
    change_a_host,
    tear_a_manifest,
)
AFTER: tuple[Callable[[Scene], Mishap], ...] = (
    change_a_merged_file,
    add_to_the_merged_files,
    forge_the_fat_wheel,
    call_a_partial_wheel_whole,
    swap_platforms,
    gather_one_twice,
    gather_another_commit,
    gather_other_sources,
    gather_an_empty_name,
    find_other_bytes,
    upload_half,
    answer_of_the_index,
)
KINDS = (*BEFORE, *AFTER)


# What runs in this process instead of a subprocess.


def run_worker(log: Log, command: Sequence[str], _: object = None) -> None:
    """Does what `conda_worker` does, but writes no index of a channel."""
    name, first, *others = command[3:]
    if name == "index":
        for package in map(Path, others):
            publish(package, Path(first) / log.settings.subdir / package.name)
    elif name == "contents":
        options = conda_worker.make_parser().parse_args(command[3:])
        options.run(options, log.settings)
    else:
        raise AssertionError(f"{name} is not expected here")


def check_by_twine(log: Log, command: Sequence[str], **_: object) -> None:
    from twine.commands.check import check

    assert "check" in command, "nothing but the check may run"
    files = [str(word) for word in command[command.index("--strict") + 1 :]]
    if check(files, strict=True):
        raise ReleaseError(f"twine refuses one of {', '.join(files)}; read {log.path}")


@contextmanager
def in_this_process(index: str | None) -> Iterator[None]:
    with (
        mock.patch.object(conda_steps, "run_worker", run_worker),
        mock.patch.object(Log, "run", check_by_twine),
        mock.patch.object(uploading, "published_hashes", published_hashes(index)),
        mock.patch.object(uploading, "find_placeholders", lambda root: ()),
        mock.patch.object(sys, "stdout", io.StringIO()),
    ):
        yield


def published_hashes(index: str | None) -> Callable[[str], dict[str, str]]:
    """The tool's own function, asked for a file in the place of PyPI's answer."""
    ask = uploading.published_hashes
    return lambda _: ask(index) if index else {}


def merge_shards(scene: Scene) -> int:
    console = Console(file=io.StringIO(), width=300)
    with in_this_process(None):
        return merge(scene.shards, console, scene.settings)


def gather(scene: Scene) -> None:
    sources = scene.sources or {scene.platform: "dist", scene.other: "other"}
    command = [str(REPO / "torchship" / "release" / "launch" / "gather_release.sh"), "release"]
    command += [f"{platform}={sources[platform]}" for platform in PLATFORMS]
    assert scene.other_dist
    result = subprocess.run(command, cwd=scene.folder, capture_output=True, text=True)
    if result.returncode:
        raise ReleaseError(result.stderr)


def upload_to(scene: Scene, target: str, *, dry_run: bool) -> None:
    console = Console(file=io.StringIO(), width=300)
    with in_this_process(scene.index):
        uploading.upload(target, scene.settings, console, dry_run=dry_run)


# The oracle.


class Wrong(Exception):
    """A mishap that certified, lost or replaced something, or that was refused without a name."""


def snapshot(folder: Path, leave_out: Sequence[str] = ()) -> dict[str, bytes]:
    """All files and links below a folder."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.partition("/")[0] in leave_out:
            continue
        if path.is_symlink():
            files[name] = str(path.readlink()).encode()
        elif path.is_file():
            files[name] = path.read_bytes()
    return files


def genuine_files(scene: Scene, platform: str, kinds: Sequence[str]) -> dict[str, bytes]:
    """The true files of a platform that must arrive, by their paths in `dist`."""
    files = {}
    for number in range(SHARDS):
        shard = scene.plant.shard(platform, number)
        manifest = parse(shard / "manifest.json")
        for artefact in manifest.artefacts:
            dropped = {*artefact.cells} & scene.dropped if platform == scene.platform else set()
            if artefact.kind in kinds and not dropped:
                files[artefact.path] = (shard / artefact.path).read_bytes()
    return files


def check_arrived(expected: dict[str, bytes], folder: Path, step: str) -> None:
    for name, data in expected.items():
        path = folder / name
        if not path.is_file():
            raise Wrong(f"lost: {step} left out {name}")
        if path.read_bytes() != data:
            raise Wrong(f"replaced: {step} has other bytes in {name}")


def check_merged(scene: Scene, code: int) -> None:
    """The true files are there, and the certificate says what the wheel holds."""
    check_arrived(
        genuine_files(scene, scene.platform, ["thin", "conda", "sdist"]), scene.dist, "merge"
    )
    manifest = parse(scene.dist / "manifest.json")
    present = [cell for cell in scene.cells if cell.name not in scene.dropped]
    required = {cell.name for cell in scene.cells if not cell.optional}
    is_whole = not required & scene.dropped
    assert manifest.fat is not None
    wheel = read_wheel(scene.dist / manifest.fat.path)
    objects = scene.plant.objects[scene.platform]
    files = {f"{LIB}/{name}": objects[name] for cell in present for name in cell.files}
    if wheel.binaries != files:
        raise Wrong("certified: the fat wheel holds other binaries than the cells that arrived")
    if {*wheel.files} != {*files, "lltm_conda/__init__.py"}:
        raise Wrong("certified: the fat wheel holds other files than the package's")
    if ("+partial" in manifest.fat.path) == is_whole or manifest.partial == is_whole:
        raise Wrong(f"certified: whole is {is_whole}, the manifest says {manifest.fat.path}")
    for artefact in manifest.artefacts:
        if artefact.kind != "fat" and {*artefact.cells} & scene.dropped:
            raise Wrong(f"certified: {artefact.path} is of a cell that failed or did not arrive")
    if {*manifest.missing} != scene.dropped:
        raise Wrong("certified: the manifest names other missing cells")
    states = {name: cell.state for name, cell in manifest.cells.items()}
    failed = {name for name, state in states.items() if state == "failed"} & required
    if code != bool(failed):
        raise Wrong(f"certified: exit code {code}, but {failed or 'nothing'} failed")


def check_gathered(scene: Scene) -> None:
    release = scene.folder / "release"
    kinds = ["thin", "sdist"]
    for platform, dist in ((scene.platform, scene.dist), (scene.other, scene.other_dist)):
        files = genuine_files(scene, platform, kinds)
        check_arrived({Path(n).name: data for n, data in files.items()}, release, "gather")
        fat = parse(dist / "manifest.json").fat
        assert fat is not None
        check_arrived({fat.path: (dist / fat.path).read_bytes()}, release, "gather")
        subdir = scene.plant.settings[platform].subdir
        subprocess.run(["tar", "-xf", f"conda-{subdir}.tar"], cwd=release, check=True)
        packages = genuine_files(scene, platform, ["conda"])
        check_arrived(
            {f"{subdir}/{Path(n).name}": d for n, d in packages.items()}, release, "gather"
        )
    if evil := [name for name in snapshot(release) if "evil" in name or "2_99" in name]:
        raise Wrong(f"certified: gather took {evil[0]}, which nobody made")
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    if subprocess.run(check, cwd=release, capture_output=True).returncode:
        raise Wrong("certified: SHA256SUMS has other hashes")


def check_folder(scene: Scene) -> None:
    files = genuine_files(scene, scene.platform, ["thin", "conda"])
    check_arrived(files, scene.public, "folder")


@dataclass
class Accident:
    """What happened: the mishaps, and for each step, its result."""

    kinds: list[str]
    platform: str
    steps: dict[str, str] = field(default_factory=dict)
    wrong: str = ""


def try_step(
    step: str, act: Callable[[], object], mishaps: Sequence[Mishap], *, must_refuse: bool = False
) -> str:
    """Does a step; returns how it was refused, or "" if it was not. Raises Wrong."""
    spoilers = [m for m in mishaps if step in m.refused_by]
    others = [m for m in mishaps if step in m.may_refuse]
    try:
        act()
    except ReleaseError as error:
        names = [name for mishap in (*spoilers, *others) for name in mishap.names]
        names += ["partial"] * must_refuse
        if not (spoilers or others or must_refuse):
            raise Wrong(f"refused: {step} refuses what is right: {error}") from error
        if not any(name and name in str(error) for name in names):
            raise Wrong(f"vague: {step} names none of {names}: {error}") from error
        return str(error)
    if spoilers or must_refuse:
        raise Wrong(f"certified: {step} took what it had to refuse ({[m.names for m in spoilers]})")
    return ""


def happen(plant: Plant, seed: int, folder: Path) -> Accident:
    """Draws one accident and lets it happen."""
    rng = random.Random(seed)
    scene = Scene(plant, rng.choice(PLATFORMS), folder / "work", rng)
    drawn = rng.sample(KINDS, rng.choice([1, 1, 2, 3]))
    drawn.sort(key=KINDS.index)
    accident = Accident([kind.__name__ for kind in drawn], scene.platform)
    try:
        _happen(scene, drawn, accident)
    except Wrong as error:
        accident.wrong = str(error)
    except Exception as error:  # what is no ReleaseError is a traceback for the user
        where = traceback.extract_tb(error.__traceback__)[-1]
        accident.wrong = f"crash: {type(error).__name__}: {error} ({where.name}:{where.lineno})"
    return accident


def _happen(scene: Scene, drawn: Sequence[Callable[[Scene], Mishap]], accident: Accident) -> None:
    mishaps = [kind(scene) for kind in drawn if kind in BEFORE]
    if has_nothing_to_merge(scene):
        mishaps.append(spoils_merge("no shard built a variant to merge"))
    products = ("dist", "build", "release", "public")
    outside = snapshot(scene.folder, products)
    dist = snapshot(scene.dist)
    codes: list[int] = []
    refusal = try_step("merge", lambda: codes.append(merge_shards(scene)), mishaps)
    if snapshot(scene.folder, products) != outside:
        raise Wrong("escaped: merge wrote outside of dist")
    if refusal:
        if snapshot(scene.dist) != dist:
            raise Wrong("half done: a refused merge changed dist")
        accident.steps["merge"] = "refused"
        return
    check_merged(scene, codes[0])
    whole = "partial" if parse(scene.dist / "manifest.json").partial else "whole"
    accident.steps["merge"] = whole
    mishaps += [kind(scene) for kind in drawn if kind in AFTER]
    assert scene.other_dist
    outside = snapshot(scene.folder, products)
    public = snapshot(scene.public)
    checks: dict[str, tuple[Callable[[], None], Callable[[], None] | None]] = {
        "gather": (lambda: gather(scene), lambda: check_gathered(scene)),
        "folder": (
            lambda: upload_to(scene, str(scene.public), dry_run=False),
            lambda: check_folder(scene),
        ),
        "pypi": (lambda: upload_to(scene, "pypi", dry_run=True), None),
    }
    for step, (act, check) in checks.items():
        must_refuse = step == "pypi" and whole == "partial"
        refusal = try_step(step, act, mishaps, must_refuse=must_refuse)
        accident.steps[step] = "refused" if refusal else "arrived"
        if not refusal and check:
            check()
        if refusal and step == "folder" and snapshot(scene.public) != public:
            raise Wrong("half done: a refused upload changed the folder")
    if snapshot(scene.folder, products) != outside:
        raise Wrong("escaped: a step wrote outside of its folder")


def run(seed: int, count: int) -> list[Accident]:
    """Lets `count` accidents happen; the same seed gives the same accidents."""
    with TemporaryDirectory(prefix="release-accidents-") as name:
        plant = Plant(Path(name) / "plant")
        accidents = []
        for number in range(count):
            work = Path(name) / "accident"
            accidents.append(happen(plant, seed * 1_000_000 + number, work))
            shutil.rmtree(work)
    return accidents


def summarize(accidents: Sequence[Accident]) -> dict[str, object]:
    """How many accidents had each kind, and how each step ended for them."""
    results: dict[str, Counter[str]] = {kind.__name__: Counter() for kind in KINDS}
    for accident in accidents:
        for kind in accident.kinds:
            result = "wrong" if accident.wrong else _result(accident)
            results[kind][result] += 1
    return {
        "accidents": len(accidents),
        "wrong": sum(bool(accident.wrong) for accident in accidents),
        "results": dict(Counter(_result(a) if not a.wrong else "wrong" for a in accidents)),
        "kinds": [{"kind": kind, **counts} for kind, counts in results.items()],
    }


def _result(accident: Accident) -> str:
    """Where an accident was refused, or that everything arrived."""
    refused = [step for step, result in accident.steps.items() if result == "refused"]
    if "merge" in refused:
        return "refused by merge"
    if not refused or (refused == ["pypi"] and accident.steps["merge"] == "partial"):
        return f"arrived, {accident.steps['merge']}"
    return "refused later"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    begin = time.monotonic()
    accidents = run(options.seed, options.count)
    for number, accident in enumerate(accidents):
        if accident.wrong:
            print(f"{number}: {', '.join(accident.kinds)} ({accident.platform}): {accident.wrong}")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=REPO, capture_output=True, text=True, check=True
    ).stdout.strip()
    summary = summarize(accidents)
    seconds = time.monotonic() - begin
    storage.save({"seed": options.seed, "commit": commit, "seconds": seconds, **summary}, RESULTS)
    print(f"{summary['accidents']} accidents, {summary['wrong']} wrong: {RESULTS}")
    sys.exit(1 if summary["wrong"] else 0)


if __name__ == "__main__":
    main()
