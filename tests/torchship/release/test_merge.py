"""Shards are merged to one wheel and one manifest; what does not belong together is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from shared_objects import shared_object
from small_releases import describe_artefact, describe_binary, make_manifest, record_of

from torchship.release import ReleaseError
from torchship.release.matrix.cells import all_cells, required
from torchship.release.publishing.merge import merge
from torchship.release.run.manifest import parse, write, wrong_files


@pytest.fixture
def dist(own_settings) -> Path:
    """An own dist/."""
    own_settings.dist.mkdir()
    return own_settings.dist


def test_shards_become_one_wheel_and_one_manifest(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    cells = [cell.name for cell in all_cells(matrix)]
    halves = cells[::2], cells[1::2]
    for number, half in enumerate(halves):
        make_manifest(tmp_path / str(number), matrix, dict.fromkeys(half, "done"), objects)
    assert merge([tmp_path / "0", tmp_path / "1"], console, own_settings) == 0
    manifest = parse(dist / "manifest.json")
    assert not manifest.partial and list(manifest.cells) == cells
    assert manifest.fat is not None and "+" not in manifest.fat.path
    assert wrong_files(manifest.artefacts, dist) == []
    assert {a.kind for a in manifest.artefacts} == {"fat", "sdist", "thin"}
    assert (dist / "logs" / f"{cells[0]}.log").exists() and (dist / "report.html").exists()
    assert len(list((dist / "simple" / "tiny-client").glob("*.whl"))) == len(cells)


def test_a_wheel_is_whole_without_what_no_torch_on_pypi_loads(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    optional = [cell.name for cell in all_cells(matrix) if cell.optional]
    make_manifest(tmp_path / "0", matrix, dict.fromkeys(required(matrix), "done"), objects)
    make_manifest(tmp_path / "1", matrix, dict.fromkeys(optional, "skipped"), objects)
    assert merge([tmp_path / "0", tmp_path / "1"], console, own_settings) == 0
    manifest = parse(dist / "manifest.json")
    assert not manifest.partial and manifest.fat is not None and "+" not in manifest.fat.path
    assert list(manifest.missing) == manifest.optional == optional
    assert ", ".join(f"{name} (optional)" for name in optional) in console.export_text()
    page = " ".join((dist / "report.html").read_text().split())
    assert "it is partial" not in page and "aten24-abi1-cpu (optional)" in page


def test_a_wheel_that_lacks_a_torch_on_pypi_is_partial_whatever_else_it_has(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    names = [cell.name for cell in all_cells(matrix) if cell.name != "aten24-abi0-cpu"]
    make_manifest(tmp_path / "0", matrix, dict.fromkeys(names, "done"), objects)
    assert merge([tmp_path / "0"], console, own_settings) == 0
    manifest = parse(dist / "manifest.json")
    assert manifest.partial
    assert "+partial.14of15-" in manifest.fat.path
    assert "lacks aten24-abi0-cpu" in console.export_text()


def test_what_no_shard_built_makes_it_partial(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    make_manifest(tmp_path / "0", matrix, {"stable210-cpu": "done"}, objects)
    make_manifest(tmp_path / "1", matrix, {"stable210-cu12": "skipped"}, objects)
    assert merge([tmp_path / "0", tmp_path / "1"], console, own_settings) == 0
    manifest = parse(dist / "manifest.json")
    assert "+partial.1of" in manifest.fat.path
    assert manifest.missing["stable210-cu12"].startswith("<sk")
    assert "lacks stable210-cu12" in console.export_text()


def test_a_cell_that_failed_in_a_shard_fails_the_merge(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    make_manifest(tmp_path / "0", matrix, {"stable210-cpu": "done"}, objects)
    make_manifest(tmp_path / "1", matrix, {"aten29-abi1-cpu": "failed"}, objects)
    assert merge([tmp_path / "0", tmp_path / "1"], console, own_settings) == 1
    assert "FAILED aten29-abi1-cpu: <failed> because" in console.export_text()


def test_the_shard_that_came_furthest_counts(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    make_manifest(tmp_path / "0", matrix, {"stable210-cpu": "failed"}, objects)
    make_manifest(tmp_path / "1", matrix, {"stable210-cpu": "done"}, objects)
    assert merge([tmp_path / "0", tmp_path / "1"], console, own_settings) == 0
    assert parse(dist / "manifest.json").cells["stable210-cpu"].state == "done"


def test_what_only_a_step_knows_outlives_a_merge(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    """A step that nobody has thought of yet needs no change of the merge."""
    name = "stable210-cpu"
    for number, cell in enumerate((name, "stable210-cu13")):
        folder = tmp_path / str(number)
        facts = {"signed": {"by": cell}}
        made = make_manifest(folder, matrix, {cell: "done"}, objects, facts={f"log-{number}": {}})
        cells = {cell: made.cells[cell].model_copy(update={"facts": facts})}
        write(made.model_copy(update={"cells": cells}), folder / "manifest.json")
    assert merge([tmp_path / "0", tmp_path / "1"], console, own_settings) == 0
    manifest = parse(dist / "manifest.json")
    assert manifest.cells[name].facts == {"signed": {"by": name}}
    assert manifest.facts.keys() == {"log-0", "log-1"}


def test_a_kind_of_file_that_nobody_knows_comes_along_unless_its_cell_failed(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    """A step that makes one needs no change of the merge."""
    for cell in ("stable210-cpu", "aten24-abi1-cpu"):
        made = make_manifest(tmp_path / cell, matrix, {cell: "done"}, objects)
        (tmp_path / cell / f"{cell}.asc").write_text(cell)
        signature = describe_artefact(tmp_path / cell, f"{cell}.asc", "signature", [cell])
        state = "failed" if cell == "aten24-abi1-cpu" else "done"
        entry = made.cells[cell].model_copy(update={"state": state})
        changes = {"artefacts": [*made.artefacts, signature], "cells": {cell: entry}}
        write(made.model_copy(update=changes), tmp_path / cell / "manifest.json")
    folders = [tmp_path / "stable210-cpu", tmp_path / "aten24-abi1-cpu"]
    assert merge(folders, console, own_settings) == 0
    manifest = parse(dist / "manifest.json")
    (signature,) = (a for a in manifest.artefacts if a.kind == "signature")
    assert (signature.path, signature.goes_to) == ("stable210-cpu.asc", ["folder"])
    assert wrong_files(manifest.artefacts, dist) == []
    assert not (dist / "aten24-abi1-cpu.asc").exists()


@pytest.mark.parametrize("field", ["commit", "version", "sources"])
def test_shards_of_different_sources_are_refused(
    field, matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    make_manifest(tmp_path / "0", matrix, {"stable210-cpu": "done"}, objects)
    make_manifest(tmp_path / "1", matrix, {"stable210-cu13": "done"}, objects, **{field: "d" * 40})
    with pytest.raises(ReleaseError, match=f"{field} is dddd.*same commit"):
        merge([tmp_path / "0", tmp_path / "1"], console, own_settings)


def test_objects_that_differ_between_shards_are_refused(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    make_manifest(tmp_path / "0", matrix, {"stable210-cpu": "done"}, objects)
    path = tmp_path / "other" / "kernels-cpu.so"
    other_build = shared_object(path, record=record_of(path.name), defined=["more"])
    other = {**objects, path.name: other_build.read_bytes()}
    make_manifest(tmp_path / "1", matrix, {"stable210-cu13": "done"}, other)
    with pytest.raises(ReleaseError, match=r"kernels-cpu\.so differs"):
        merge([tmp_path / "0", tmp_path / "1"], console, own_settings)
    assert not (dist / "manifest.json").exists()


def test_the_hash_of_a_binary_is_that_of_the_packed_one(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    """Another shard may have made other bytes under the same name, for a cell that failed."""
    make_manifest(tmp_path / "0", matrix, {"stable210-cpu": "done"}, objects)
    other = {"kernels-cpu.so": describe_binary(b"other")}
    states = {"aten29-abi1-cpu": "failed"}
    make_manifest(tmp_path / "1", matrix, states, objects, binaries=other)
    assert merge([tmp_path / "0", tmp_path / "1"], console, own_settings) == 1
    binaries = parse(dist / "manifest.json").binaries
    data = objects["kernels-cpu.so"]
    assert binaries["kernels-cpu.so"].sha256 == hashlib.sha256(data).hexdigest()


def test_a_binary_that_no_manifest_knows_is_refused(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    wrong = {name: describe_binary(b"other") for name in ("glue-stable210.so", "kernels-cpu.so")}
    make_manifest(tmp_path / "0", matrix, {"stable210-cpu": "done"}, objects, binaries=wrong)
    with pytest.raises(ReleaseError, match=r"holds a tiny_client/lib/.* that is not the manifest"):
        merge([tmp_path / "0"], console, own_settings)
    assert not (dist / "manifest.json").exists()


def test_a_shard_with_a_changed_wheel_is_refused(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    manifest = make_manifest(tmp_path / "0", matrix, {"stable210-cpu": "done"}, objects)
    (tmp_path / "0" / manifest.cells["stable210-cpu"].wheel).write_bytes(b"torn")
    with pytest.raises(ReleaseError, match="hash differs"):
        merge([tmp_path / "0"], console, own_settings)


def test_a_folder_without_a_whole_manifest_is_refused_and_left_alone(
    matrix, tmp_path, dist, console, own_settings
) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "manifest.json").write_text("{")
    with pytest.raises(ReleaseError, match="manifest is not whole"):
        merge([tmp_path / "0"], console, own_settings)
    assert (tmp_path / "0" / "manifest.json").read_text() == "{"
