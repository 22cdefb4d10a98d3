"""The manifest: of a schema, whole or not trusted, true to its files; shards and their merging."""

from __future__ import annotations

import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from own_facts import GLUE_RECORD, KERNELS_RECORD
from rich.console import Console
from shared_objects import shared_object
from wheel_makers import make_sdist, make_wheel

from torchship.release import ReleaseError
from torchship.release.cells import all_cells, required
from torchship.release.collect import host_facts
from torchship.release.host import Host
from torchship.release.manifest import (
    Artefact,
    Binary,
    CellEntry,
    HostFacts,
    Manifest,
    Run,
    carried,
    grid,
    json_schema,
    parse,
    read_or_set_aside,
    render,
    write,
    wrong_files,
)
from torchship.release.merge import merge
from torchship.release.store import digest

HOST = HostFacts(system="Linux", python="3.11", compiler="g++ 12", processors=2, gpus=[], tools={})
SOURCES = "s" * 64


def entry(cell, state: str = "done", **more) -> CellEntry:
    return CellEntry(state=state, torch=cell.torch.release, host="h", **more)


def make_manifest(folder: Path, matrix, states: dict[str, str], objects, **more) -> Manifest:
    """A dist folder with thin wheels and logs of these cells, and its manifest."""
    cells, artefacts = {}, []
    matrix_cells = all_cells(matrix)
    for cell in (c for c in matrix_cells if c.name in states):
        state = states[cell.name]
        reason = "" if state == "done" else f"<{state}> because"
        fields: dict = {"reason": reason, "steps": {f"wheel/{cell.name}": 1.5}}
        log = folder / "logs" / f"{cell.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"log of {cell.name} & <others>\n")
        fields["log"] = f"logs/{cell.name}.log"
        if state in ("done", "partial"):
            version = f"0.1.0+{cell.local_version}"
            files = {name: objects[name] for name in names(cell)}
            wheel = make_wheel(folder / "simple" / "lltm", files, version=version)
            path = wheel.relative_to(folder).as_posix()
            artefacts.append(artefact(folder, path, "thin", [cell.name]))
            run = Run(kind="venv", ran=True, facts={"torch": "2.13.0", "devices": ["cpu"]})
            fields |= {"wheel": path, "binaries": names(cell), "runs": [run]}
        cells[cell.name] = entry(cell, state, **fields)
    sdist = make_sdist(folder / "lltm-0.1.0.tar.gz")
    artefacts.append(artefact(folder, sdist.name, "sdist", []))
    binary_names = {name for cell in cells.values() for name in cell.binaries}
    binaries = {name: binary(objects[name]) for name in sorted(binary_names)}
    manifest = Manifest(
        package="lltm",
        version="0.1.0",
        commit="c" * 40,
        clean=True,
        sources=SOURCES,
        source_date="2026-01-01T00:00:00Z",
        base_channel="https://conda.anaconda.org/conda-forge",
        made="2026-01-01T00:00:00Z",
        seconds=3.0,
        total=len(matrix_cells),
        missing={c.name: "not selected" for c in matrix_cells if states.get(c.name) != "done"},
        optional=[c.name for c in matrix_cells if c.optional],
        cells=cells,
        binaries=binaries,
        artefacts=artefacts,
        hosts={"h": HOST},
    ).model_copy(update=more)
    write(manifest, folder / "manifest.json")
    return manifest


def binary(data: bytes) -> Binary:
    sha256 = hashlib.sha256(data).hexdigest()
    return Binary(sha256=sha256, size=len(data), record=KERNELS_RECORD, needed=[], versions={})


def names(cell) -> list[str]:
    return [f"glue-{cell.glue}.so", *(f"kernels-{name}.so" for name in cell.kernels)]


def artefact(folder: Path, path: str, kind: str, cells: list[str]) -> Artefact:
    file = folder / path
    return Artefact(
        path=path, kind=kind, sha256=digest(file), size=file.stat().st_size, cells=cells
    )


# A symbol of torch in each flavour of the C++ ABI.
TORCH_SYMBOLS = (
    "_ZN3c105ErrorC1ENS_14SourceLocationESs",
    "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
)


def record_of(file: str, **changes) -> dict:
    """The build record of a binary, by its file name."""
    kind, _, name = file.removesuffix(".so").partition("-")
    facts = {"name": name, "git_commit": "c" * 40}
    if kind == "kernels":
        return {**KERNELS_RECORD, **facts, **changes}
    if name.startswith("aten"):
        facts |= {"lane": "aten", "torch_target": f"2.{name[5]}", "cxx11_abi": int(name[-1])}
    return {**GLUE_RECORD, **facts, **changes}


@pytest.fixture(scope="session")
def objects(matrix, tmp_path_factory) -> dict[str, bytes]:
    """A small real shared object for every name of the matrix."""
    folder = tmp_path_factory.mktemp("objects")
    contents = {}
    for name in sorted({name for cell in all_cells(matrix) for name in names(cell)}):
        symbols = [TORCH_SYMBOLS[int(name[-4])]] if name.startswith("glue-aten") else []
        path = shared_object(folder / name, record=record_of(name), undefined=symbols)
        contents[name] = path.read_bytes()
    return contents


@pytest.fixture
def console() -> Console:
    return Console(record=True, width=300, force_terminal=False)


@pytest.fixture
def dist(own_settings) -> Path:
    """An own dist/."""
    own_settings.dist.mkdir()
    return own_settings.dist


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
        "other schema": content.replace('"schema": 1', '"schema": 2').encode(),
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
    assert set(carried(manifest, SOURCES, tmp_path)) == {"stable210-cpu", "stable210-cu13"}
    # Packed, and then found not to run.
    failed = manifest.cells["stable210-cpu"].model_copy(update={"state": "failed"})
    manifest = manifest.model_copy(update={"cells": {**manifest.cells, "stable210-cpu": failed}})
    assert set(carried(manifest, SOURCES, tmp_path)) == {"stable210-cu13"}


def test_nothing_is_kept_of_other_sources(matrix, objects, tmp_path) -> None:
    manifest = make_manifest(tmp_path, matrix, {"stable210-cpu": "done"}, objects)
    assert carried(manifest, "t" * 64, tmp_path) == {}
    assert carried(None, SOURCES, tmp_path) == {}


def test_a_cell_whose_wheel_was_damaged_is_not_kept(matrix, objects, tmp_path) -> None:
    manifest = make_manifest(tmp_path, matrix, {"stable210-cpu": "done"}, objects)
    (tmp_path / manifest.cells["stable210-cpu"].wheel).write_bytes(b"torn")
    assert carried(manifest, SOURCES, tmp_path) == {}


# Merging shards.


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
    assert len(list((dist / "simple" / "lltm").glob("*.whl"))) == len(cells)


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
    assert manifest.partial and "+partial.14of15-" in manifest.fat.path
    assert "lacks aten24-abi0-cpu" in console.export_text()


def test_what_no_shard_built_makes_it_partial(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    make_manifest(tmp_path / "0", matrix, {"stable210-cpu": "done"}, objects)
    make_manifest(tmp_path / "1", matrix, {"stable210-cu12": "skipped"}, objects)
    assert merge([tmp_path / "0", tmp_path / "1"], console, own_settings) == 0
    manifest = parse(dist / "manifest.json")
    assert "+partial.1of" in manifest.fat.path and manifest.missing["stable210-cu12"].startswith(
        "<sk"
    )
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
    other = {"kernels-cpu.so": binary(b"other")}
    states = {"aten29-abi1-cpu": "failed"}
    make_manifest(tmp_path / "1", matrix, states, objects, binaries=other)
    assert merge([tmp_path / "0", tmp_path / "1"], console, own_settings) == 1
    binaries = parse(dist / "manifest.json").binaries
    data = objects["kernels-cpu.so"]
    assert binaries["kernels-cpu.so"].sha256 == hashlib.sha256(data).hexdigest()
    assert binaries["kernels-cpu.so"].record == record_of("kernels-cpu.so")


def test_a_binary_that_no_manifest_knows_is_refused(
    matrix, objects, tmp_path, dist, console, own_settings
) -> None:
    wrong = {name: binary(b"other") for name in ("glue-stable210.so", "kernels-cpu.so")}
    make_manifest(tmp_path / "0", matrix, {"stable210-cpu": "done"}, objects, binaries=wrong)
    with pytest.raises(ReleaseError, match="no manifest has the hash"):
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
    with pytest.raises(ReleaseError, match="no whole manifest"):
        merge([tmp_path / "0"], console, own_settings)
    assert (tmp_path / "0" / "manifest.json").read_text() == "{"


# The page.


def test_the_page_shows_every_cell_in_the_colour_of_its_state(matrix, objects, tmp_path) -> None:
    states = {"stable210-cpu": "done", "stable210-cu13": "partial", "aten29-abi1-cpu": "failed"}
    states["aten24-abi0-cpu"] = "skipped"
    page = render(make_manifest(tmp_path, matrix, states, objects), tmp_path)
    for name, state in states.items():
        assert f'<td class="{state}"><a href="#{name}">{state}</a>' in page
    assert page.count('class="untried"') == len(all_cells(matrix)) - len(states)


class Balance(HTMLParser):
    """Every element that must be closed is, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag, attrs) -> None:
        attributes = dict(attrs)
        self.ids |= {attributes["id"]} if "id" in attributes else set()
        self.links |= {attributes["href"]} if "href" in attributes else set()
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag, self.getpos()


def test_the_page_is_sound_html_and_its_links_lead_somewhere(matrix, objects, tmp_path) -> None:
    states = {"stable210-cpu": "done", "stable210-cu13": "partial", "aten29-abi1-cpu": "failed"}
    reader = Balance()
    reader.feed(render(make_manifest(tmp_path, matrix, states, objects), tmp_path))
    assert reader.open == []
    assert reader.links == {f"#{name}" for name in states} <= {f"#{name}" for name in reader.ids}


def test_seconds_of_a_step_that_serves_two_cells_count_once(matrix, objects, tmp_path) -> None:
    states = dict.fromkeys(("stable210-cpu", "stable210-cu12"), "done")
    manifest = make_manifest(tmp_path, matrix, states, objects)
    cells = {
        name: cell.model_copy(update={"steps": {**cell.steps, "glue/stable210": 40.0}})
        for name, cell in manifest.cells.items()
    }
    page = render(manifest.model_copy(update={"cells": cells}), tmp_path)
    totals = re.findall(r'<span class="soft">([\d.]+) s</span></summary>', page)
    assert sorted(map(float, totals)) == [1.5, 41.5]
    assert page.count("40.0 s") == 1 and "in stable210-c" in page


def test_the_report_says_how_many_of_how_many(matrix, objects, tmp_path) -> None:
    states = {"stable210-cpu": "done", "aten29-abi1-cpu": "skipped"}
    page = " ".join(render(make_manifest(tmp_path, matrix, states, objects), tmp_path).split())
    assert f"1 done, 1 skipped of {len(all_cells(matrix))} cells." in page


def test_the_page_needs_nothing_else(matrix, objects, tmp_path) -> None:
    page = render(make_manifest(tmp_path, matrix, {"stable210-cpu": "done"}, objects), tmp_path)
    assert "src=" not in page and "@import" not in page and "<link" not in page
    assert "<script" not in page and "url(" not in page


def test_the_page_holds_logs_and_timings_as_text(matrix, objects, tmp_path) -> None:
    page = render(make_manifest(tmp_path, matrix, {"aten29-abi1-cpu": "failed"}, objects), tmp_path)
    assert "log of aten29-abi1-cpu &amp; &lt;others&gt;" in page
    assert "&lt;failed&gt; because" in page and "<others>" not in page
    assert '<td>wheel/aten29-abi1-cpu</td><td class="number">1.5 s</td>' in page


def test_the_grid_has_a_place_for_every_cell_of_the_matrix(matrix, objects, tmp_path) -> None:
    manifest = make_manifest(tmp_path, matrix, {"stable210-cpu": "done"}, objects)
    rows, columns = grid(manifest)
    assert {name for row in rows.values() for name in row.values()} == {
        cell.name for cell in all_cells(matrix)
    }
    assert columns == ["cpu", "cu12", "cu13"] and next(iter(rows)) == "stable210"
