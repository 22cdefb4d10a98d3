"""Small true artefacts, where a build would take minutes: what `scripts/build_all.sh` leaves in
`dist`, with shared objects of one page that carry true records.

What joins, checks and gathers them is the release tool itself.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from measurements.release_accidents import (
    LLTM,
    PLATFORMS,
    REPO,
    finish_shard,
    in_this_process,
    list_again,
    make_objects,
    read_json,
    write_json,
)
from torchship.release.cells import Cell, all_cells
from torchship.release.matrix import load
from torchship.release.merge import merge
from torchship.release.schema import Tool
from torchship.release.settings import Settings, make_settings
from torchship.release.tools import TAG, wheel_path
from torchship.release.wheels import Wheel

# After release_accidents, which puts the folders of tests on sys.path.
from small_releases import HOST, make_manifest  # isort: skip

COMMIT = "c" * 40  # of the objects' records
EPOCH = 1_700_000_000
TOOL_METADATA = "Metadata-Version: 2.4\nName: {}\nVersion: {}\nRequires-Python: >=3.10\n"
TOOL_WHEEL = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {TAG}\n"


def load_platforms(repo: Path = REPO) -> dict[str, Settings]:
    """The settings of every platform for a checkout, as on a machine of its own."""
    by_platform = {}
    for platform in PLATFORMS:
        settings = make_settings(load(repo / "build_matrix.yaml", platform), repo)
        by_platform[platform] = replace(settings, native=platform)
    return by_platform


@dataclass(frozen=True, kw_only=True)
class Order:
    """What one run of the release tool is to make."""

    platform: str
    cells: tuple[str, ...]
    has_tools: bool
    image: str
    failing: frozenset[str] = frozenset()


@dataclass
class Prebuilt:
    """Makes `dist` folders; each is made once, and copied from then on."""

    folder: Path
    settings: dict[str, Settings]
    commit: str = COMMIT
    _objects: dict[str, dict[str, bytes]] = field(default_factory=dict)
    _made: dict[Order, Path] = field(default_factory=dict)

    def deliver(self, order: Order, dist: Path) -> None:
        """Puts what was ordered into an empty folder."""
        if order not in self._made:
            place = self.folder / f"dist-{len(self._made)}"
            self.make(order, place)
            self._made[order] = place
        shutil.copytree(self._made[order], dist, dirs_exist_ok=True)

    def join(self, shards: Sequence[Path], platform: str, root: Path) -> int:
        """Merges shards into `root/dist`, by the release tool; returns its exit code."""
        settings = replace(self.settings[platform], build=root / "build", dist=root / "dist")
        with in_this_process(None):
            return merge(shards, Console(file=io.StringIO(), width=300), settings)

    def make(self, order: Order, place: Path) -> None:
        """Makes what was ordered in a new folder."""
        settings = self.settings[order.platform]
        objects = self._objects_of(order.platform)
        states = {
            name: "failed" if {name, order.platform} & order.failing else "done"
            for name in order.cells
        }
        host = HOST.model_copy(update={"image": order.image})
        make_manifest(place, settings.matrix, states, objects, shape=LLTM, hosts={"h": host})
        cells = [c for c in all_cells(settings.matrix) if states.get(c.name) == "done"]
        finish_shard(place, cells, settings, objects)
        if order.has_tools:
            for tool in settings.matrix.tools:
                _add_tool(tool, place, settings)

    def _objects_of(self, platform: str) -> dict[str, bytes]:
        if platform not in self._objects:
            cells: list[Cell] = all_cells(self.settings[platform].matrix)
            folder = self.folder / "objects" / platform
            self._objects[platform] = make_objects(cells, folder)
        return self._objects[platform]


def _add_tool(tool: Tool, place: Path, settings: Settings) -> None:
    """The wheel of a tool, and its entries in the manifest."""
    version = settings.project.version
    commands = f"[console_scripts]\n{tool.name} = {tool.package}:main\n"
    info = {
        "METADATA": TOOL_METADATA.format(tool.name, version).encode(),
        "WHEEL": TOOL_WHEEL.encode(),
        "entry_points.txt": commands.encode(),
        "licenses/LICENSE": b"",
    }
    path = place / wheel_path(tool, settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    files = {f"{tool.package}/__init__.py": b"def main() -> None: ...\n"}
    Wheel(tool.package, version, TAG, files, info).write(path.parent, epoch=EPOCH)
    name = path.relative_to(place).as_posix()
    manifest = read_json(place / "manifest.json")
    manifest["tools"][tool.name] = {"state": "done", "files": [name]}
    manifest["artefacts"].append(
        {"path": name, "kind": "pure", "sha256": "0" * 64, "size": 0, "cells": []}
    )
    write_json(place / "manifest.json", manifest)
    list_again(place, name)
