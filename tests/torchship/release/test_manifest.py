"""The manifest: of a schema, whole or not trusted, true to its files; what the next run keeps."""

from __future__ import annotations

import json
import re

import pytest
from small_releases import SOURCES, make_manifest

from torchship.release.plan.machine import Host
from torchship.release.run.collect import host_facts
from torchship.release.run.manifest import (
    cells_to_keep,
    json_schema,
    parse,
    read_or_set_aside,
    wrong_files,
)


def test_a_manifest_survives_the_way_to_disk_and_back(matrix, objects, tmp_path) -> None:
    manifest = make_manifest(tmp_path, matrix, {"stable210-cpu": "done"}, objects)
    assert parse(tmp_path / "manifest.json") == manifest


def test_a_run_names_its_image(monkeypatch) -> None:
    monkeypatch.setenv("RELEASE_IMAGE", "builder:cuda12.8@sha256:1")
    assert host_facts(Host("python3", "3.12", None, None)).image == "builder:cuda12.8@sha256:1"


def test_the_schema_beside_it_holds_for_it(matrix, objects, tmp_path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    make_manifest(tmp_path, matrix, {"stable210-cpu": "done"}, objects)
    data = json.loads((tmp_path / "manifest.json").read_text())
    schema = json.loads((tmp_path / "manifest.schema.json").read_text())
    assert json.dumps(schema, indent=1) + "\n" == json_schema()
    jsonschema.validate(data, schema)
    data["cells"]["stable210-cpu"]["state"] = "fine"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema)


@pytest.mark.parametrize(
    "damage",
    [
        "half",
        "empty",
        "binary",
        "other schema",
        "unknown key",
        "missing key",
        "list",
        "text for a number",
    ],
)
def test_what_is_not_whole_is_set_aside(damage, matrix, objects, tmp_path) -> None:
    make_manifest(tmp_path, matrix, {"stable210-cpu": "done"}, objects)
    path = tmp_path / "manifest.json"
    content = path.read_text()
    damaged = {
        "half": content[: len(content) // 2].encode(),
        "empty": b"",
        "binary": b"\xff\xfe\x00",
        "other schema": content.replace('"schema": 2', '"schema": 1').encode(),
        "unknown key": content.replace('"clean"', '"colour": 1, "clean"').encode(),
        "missing key": content.replace('"total"', '"sum"').encode(),
        "text for a number": re.sub(r'"total": (\d+)', r'"total": "\1"', content).encode(),
        "list": b"[]",
    }[damage]
    path.write_bytes(damaged)
    log: list[str] = []
    assert read_or_set_aside(path, log.append) is None
    assert not path.exists()
    assert (tmp_path / "manifest.json.set-aside-1").read_bytes() == damaged
    assert "set aside as manifest.json.set-aside-1" in log[0]


def test_an_earlier_one_that_was_set_aside_is_kept(tmp_path) -> None:
    for _ in range(2):
        (tmp_path / "manifest.json").write_text("{")
        read_or_set_aside(tmp_path / "manifest.json", lambda _text: None)
    assert len(list(tmp_path.glob("manifest.json.set-aside-*"))) == 2


def test_no_manifest_is_nothing_to_tell(tmp_path) -> None:
    assert read_or_set_aside(tmp_path / "manifest.json", pytest.fail) is None


def test_files_that_are_not_what_was_made_are_named(matrix, objects, tmp_path) -> None:
    states = {"stable210-cpu": "done", "stable210-cu13": "done"}
    manifest = make_manifest(tmp_path, matrix, states, objects)
    assert wrong_files(manifest.artefacts, tmp_path) == []
    (tmp_path / manifest.cells["stable210-cpu"].wheel).write_bytes(b"other")
    (tmp_path / manifest.cells["stable210-cu13"].wheel).unlink()
    first, second = wrong_files(manifest.artefacts, tmp_path)
    assert "stable.cpu" in first and "hash differs" in first
    assert "stable.cu13" in second and "missing" in second


# What one run keeps of the one before.


def test_good_cells_of_the_same_sources_are_kept(matrix, objects, tmp_path) -> None:
    states = {"stable210-cpu": "done", "stable210-cu13": "partial", "aten29-abi1-cpu": "failed"}
    manifest = make_manifest(tmp_path, matrix, states, objects)
    assert set(cells_to_keep(manifest, SOURCES, tmp_path)) == {"stable210-cpu", "stable210-cu13"}
    # Packed, and then found not to run.
    failed = manifest.cells["stable210-cpu"].model_copy(update={"state": "failed"})
    manifest = manifest.model_copy(update={"cells": {**manifest.cells, "stable210-cpu": failed}})
    assert set(cells_to_keep(manifest, SOURCES, tmp_path)) == {"stable210-cu13"}


def test_nothing_is_kept_of_other_sources(matrix, objects, tmp_path) -> None:
    manifest = make_manifest(tmp_path, matrix, {"stable210-cpu": "done"}, objects)
    assert cells_to_keep(manifest, "t" * 64, tmp_path) == {}
    assert cells_to_keep(None, SOURCES, tmp_path) == {}


def test_a_cell_whose_wheel_was_damaged_is_not_kept(matrix, objects, tmp_path) -> None:
    manifest = make_manifest(tmp_path, matrix, {"stable210-cpu": "done"}, objects)
    (tmp_path / manifest.cells["stable210-cpu"].wheel).write_bytes(b"torn")
    assert cells_to_keep(manifest, SOURCES, tmp_path) == {}
