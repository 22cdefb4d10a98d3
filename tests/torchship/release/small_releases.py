"""Makes the `dist` folders of shards and of releases of a client's shape, without a build."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shared_objects import ERROR_NEW, ERROR_OLD, GLUE_RECORD, KERNELS_RECORD, shared_object
from small_checkout import SETTINGS
from small_wheels import SMALL, VERSION, Shape, make_sdist, make_wheel

from torchship.release.matrix.cells import Cell, all_cells
from torchship.release.matrix.schema import Matrix
from torchship.release.run.manifest import (
    Artefact,
    Binary,
    CellEntry,
    HostFacts,
    Manifest,
    Run,
    write,
)
from torchship.release.run.store import digest

HOST = HostFacts(system="Linux", python="3.11", compiler="g++ 12", processors=2, gpus=[], tools={})
COMMIT = "c" * 40
SOURCES = "s" * 64
DATE = "2026-01-01T00:00:00Z"
CONDA_FORGE = "https://conda.anaconda.org/conda-forge"
MANYLINUX = "py3-none-manylinux_2_34_x86_64"
#: Which targets of `upload` take an artefact of each kind.
GOES_TO = {
    "fat": ["pypi"],
    "sdist": ["pypi"],
    "thin": ["folder"],
    "conda": ["anaconda", "folder"],
    "pure": ["pypi", "folder"],
    "noarch": ["anaconda", "folder"],
    "zipapp": [],
}
#: A symbol of torch in each flavour of the C++ ABI.
TORCH_SYMBOLS = (ERROR_OLD, ERROR_NEW)


def record_of(file: str, *, shape: Shape = SMALL, **changes: object) -> dict[str, Any]:
    """The build record of a binary, by its file name."""
    kind, _, name = file.removesuffix(".so").partition("-")
    facts = {"package": shape.distribution, "name": name, "git_commit": COMMIT}
    if kind == "kernels":
        return {**KERNELS_RECORD, **facts, **changes}
    if name.startswith("aten"):
        facts |= {"lane": "aten", "torch_target": f"2.{name[5]}", "cxx11_abi": int(name[-1])}
    return {**GLUE_RECORD, **facts, **changes}


@cache
def small_objects() -> Mapping[str, bytes]:
    """A small real shared object for every file of the client's cells."""
    contents = {}
    names = {name for cell in all_cells(SETTINGS.matrix) for name in cell.files}
    with TemporaryDirectory() as folder:
        for name in sorted(names):
            symbols = [TORCH_SYMBOLS[int(name[-4])]] if name.startswith("glue-aten") else []
            path = shared_object(Path(folder, name), record=record_of(name), undefined=symbols)
            contents[name] = path.read_bytes()
    return contents


def describe_binary(data: bytes) -> Binary:
    sha256 = hashlib.sha256(data).hexdigest()
    return Binary(sha256=sha256, size=len(data), record=KERNELS_RECORD, needed=[], versions={})


def describe_artefact(folder: Path, path: str, kind: str, cells: Sequence[str] = ()) -> Artefact:
    """A file as the manifest of `folder` lists it."""
    file = folder / path
    return Artefact(
        path=path,
        kind=kind,
        sha256=digest(file),
        size=file.stat().st_size,
        goes_to=GOES_TO.get(kind, ["folder"]),
        cells=list(cells),
    )


def make_clean_manifest(
    cells: Mapping[str, CellEntry], artefacts: Sequence[Artefact], *, shape: Shape = SMALL
) -> Manifest:
    """The manifest of a run from a commit that made all of these cells."""
    return Manifest(
        package=shape.distribution,
        version=VERSION,
        commit=COMMIT,
        clean=True,
        sources=SOURCES,
        source_date=DATE,
        base_channel=CONDA_FORGE,
        made=DATE,
        seconds=3.0,
        total=len(cells),
        missing={},
        cells=dict(cells),
        binaries={},
        artefacts=list(artefacts),
        hosts={"h": HOST},
    )


def make_cell(
    folder: Path, cell: Cell, state: str, objects: Mapping[str, bytes], *, shape: Shape = SMALL
) -> CellEntry:
    """What a run says of a cell in this state, whose log and thin wheel are put into `folder`."""
    log = folder / "logs" / f"{cell.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"log of {cell.name} & <others>\n")
    entry = CellEntry(
        state=state,
        torch=cell.torch.release,
        host="h",
        reason="" if state == "done" else f"<{state}> because",
        steps={f"wheel/{cell.name}": 1.5},
        log=log.relative_to(folder).as_posix(),
    )
    if state not in ("done", "partial"):
        return entry
    wheel = make_wheel(
        folder / "simple" / shape.distribution,
        {name: objects[name] for name in cell.files},
        version=f"{VERSION}+{cell.local_version}",
        shape=shape,
    )
    run = Run(kind="venv", ran=True, facts={"torch": "2.13.0", "devices": ["cpu"]})
    path = wheel.relative_to(folder).as_posix()
    return entry.model_copy(update={"wheel": path, "binaries": cell.files, "runs": [run]})


def make_manifest(
    folder: Path,
    matrix: Matrix,
    states: Mapping[str, str],
    objects: Mapping[str, bytes],
    *,
    shape: Shape = SMALL,
    **changes: object,
) -> Manifest:
    """A shard: a `dist` folder with thin wheels and logs of these cells, and its manifest.

    `states` has the state of each cell, `objects` the binaries by the names of their files, and
    `changes` what the manifest says instead of the truth.
    """
    matrix_cells = all_cells(matrix)
    cells = {
        cell.name: make_cell(folder, cell, states[cell.name], objects, shape=shape)
        for cell in matrix_cells
        if cell.name in states
    }
    artefacts = [
        describe_artefact(folder, entry.wheel, "thin", [name])
        for name, entry in cells.items()
        if entry.wheel
    ]
    sdist = make_sdist(folder / f"{shape.name}-{VERSION}.tar.gz", shape=shape)
    artefacts.append(describe_artefact(folder, sdist.name, "sdist"))
    packed = sorted({name for cell in cells.values() for name in cell.binaries})
    facts = {
        "total": len(matrix_cells),
        "missing": {c.name: "not selected" for c in matrix_cells if states.get(c.name) != "done"},
        "optional": [c.name for c in matrix_cells if c.optional],
        "binaries": {name: describe_binary(objects[name]) for name in packed},
    }
    clean = make_clean_manifest(cells, artefacts, shape=shape)
    manifest = clean.model_copy(update={**facts, **changes})
    write(manifest, folder / "manifest.json")
    return manifest


def make_release(
    dist: Path,
    *,
    fat_version: str = VERSION,
    tag: str = MANYLINUX,
    shape: Shape = SMALL,
    **changes: object,
) -> Manifest:
    """A `dist` folder that may be uploaded, but for `changes` of its manifest."""
    objects = small_objects()
    simple = dist / "simple" / shape.distribution
    fat = make_wheel(dist, objects, version=fat_version, tag=tag, shape=shape)
    thin = make_wheel(simple, {}, version=f"{VERSION}+stable.cpu", tag=MANYLINUX, shape=shape)
    conda = dist / "channel" / "linux-64" / f"{shape.distribution}-{VERSION}-cpu_0.conda"
    conda.parent.mkdir(parents=True)
    conda.write_bytes(b"conda")
    artefacts = [
        describe_artefact(dist, path.relative_to(dist).as_posix(), kind, ["stable210-cpu"])
        for kind, path in (("fat", fat), ("thin", thin), ("conda", conda))
    ]
    sdist = make_sdist(dist / f"{shape.name}-{VERSION}.tar.gz", shape=shape)
    artefacts.append(describe_artefact(dist, sdist.name, "sdist"))
    cell = CellEntry(
        state="done", torch="2.13.0", wheel=artefacts[1].path, binaries=sorted(objects)
    )
    cells = {"stable210-cpu": cell}
    binaries = {name: describe_binary(data) for name, data in objects.items()}
    clean = make_clean_manifest(cells, artefacts, shape=shape)
    manifest = clean.model_copy(update={"binaries": binaries, **changes})
    write(manifest, dist / "manifest.json")
    return manifest
