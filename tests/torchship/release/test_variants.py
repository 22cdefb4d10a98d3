"""Wheel variants: what `--variants` writes, which wheel installers take, and that none goes out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from small_checkout import CHECKOUT
from small_releases import MANYLINUX, describe_artefact, make_clean_manifest, small_objects
from small_wheels import METADATA, SMALL, make_wheel

from torchship.release import ReleaseError
from torchship.release import __main__ as command
from torchship.release.__main__ import main
from torchship.release.cells import Cell, all_cells
from torchship.release.manifest import CellEntry, Manifest, parse, write
from torchship.release.settings import Settings
from torchship.release.store import digest
from torchship.release.upload import upload
from torchship.release.variants import write_variants
from torchship.release.wheels import is_of_variants, read_wheel

pytest.importorskip("variantlib")

LABELS = ("null", "cu12", "cu13")
PREFIX = "tiny_client-0.1.0-py3-none-manylinux"
#: The client's wheels with a requirement of torch.
REQUIRING = replace(SMALL, metadata=METADATA.replace("\n\n", "\nRequires-Dist: torch>=2.4\n\n", 1))


def make_thin_wheel(settings: Settings, cell: Cell) -> Path:
    return make_wheel(
        settings.thin_wheels,
        {name: small_objects()[name] for name in cell.files},
        version=f"0.1.0+{cell.local_version}",
        tag=MANYLINUX,
        shape=REQUIRING,
    )


def make_dist(settings: Settings, cells: Sequence[str] = (), *, is_whole: bool = False) -> Manifest:
    """A dist folder with the thin wheels of these cells, by default of the stable glue."""
    chosen = [c for c in all_cells(settings.matrix) if c.name in cells or (c.stable and not cells)]
    paths = {
        cell.name: make_thin_wheel(settings, cell).relative_to(settings.dist).as_posix()
        for cell in chosen
    }
    fat = make_wheel(settings.dist, small_objects(), tag=MANYLINUX)
    kinds = {**dict.fromkeys(paths.values(), "thin"), fat.name: "fat"}
    entries = {
        name: CellEntry(state="done", torch="2.13.0", wheel=path) for name, path in paths.items()
    }
    artefacts = [describe_artefact(settings.dist, path, kind) for path, kind in kinds.items()]
    missing = {} if is_whole else {"aten24-abi0-cpu": "not asked for"}
    manifest = make_clean_manifest(entries, artefacts).model_copy(update={"missing": missing})
    write(manifest, settings.manifest)
    return manifest


@pytest.fixture(scope="module")
def written(settings, tmp_path_factory) -> Iterator[Settings]:
    """The settings of a dist folder with its index of variants."""
    folder = tmp_path_factory.mktemp("variants")
    own = replace(settings, build=folder / "build", dist=folder / "dist")
    make_dist(own)
    write_variants(own, Console(quiet=True))
    yield own


def files_of(settings: Settings) -> dict[str, Path]:
    """The wheels of the index by their labels, the plain one by "plain"."""
    wheels = {}
    for path in (settings.variant_index / "tiny-client").glob("*.whl"):
        parts = path.stem.split("-")
        wheels[parts[5] if len(parts) == 6 else "plain"] = path
    return wheels


def read_description(settings: Settings) -> dict[str, Any]:
    path = settings.variant_index / "tiny-client" / "tiny_client-0.1.0-variants.json"
    description: dict[str, Any] = json.loads(path.read_text())
    return description


def test_the_index_has_a_wheel_for_each_kind_of_driver_and_a_plain_one(written) -> None:
    wheels = files_of(written)
    assert {*wheels} == {*LABELS, "plain"}
    assert all(path.name.startswith(PREFIX) for path in wheels.values())


def test_the_description_names_the_drivers_of_each_variant(written) -> None:
    variants = read_description(written)["variants"]
    bound = "cuda_version_lower_bound"
    assert variants == {
        "null": {},
        "cu12": {"nvidia": {bound: ["12.0"]}},
        "cu13": {"nvidia": {bound: ["13.0"]}},
    }


@pytest.mark.parametrize("label", LABELS)
def test_a_wheel_describes_itself_as_the_index_does(label, written) -> None:
    from variantlib.variant_dist_info import VariantDistInfo

    index = read_description(written)
    text = read_variant(files_of(written)[label]).info["variant.json"]
    assert VariantDistInfo(text, label).variant_label == label
    own = json.loads(text)
    assert own == {**index, "variants": {label: index["variants"][label]}}


def read_variant(path: Path):
    """A wheel variant, whose name a reader of plain wheels does not know."""
    plain = path.with_name(path.name.rpartition("-")[0] + ".whl")
    other = path.parents[2] / "read" / plain.name
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(path.read_bytes())
    return read_wheel(other)


@pytest.mark.parametrize(
    ("label", "kernels"),
    [
        ("null", {"cpu"}),
        ("cu12", {"cpu", "cuda12"}),
        ("cu13", {"cpu", "cuda13"}),
    ],
)
def test_a_variant_holds_the_kernels_of_its_driver_alone(label, kernels, written) -> None:
    names = {Path(name).name for name in read_variant(files_of(written)[label]).binaries}
    assert names == {"glue-stable210.so", *(f"kernels-{name}.so" for name in kernels)}


@pytest.mark.parametrize("label", LABELS)
def test_a_variant_needs_the_first_torch_of_the_stable_glue(label, written) -> None:
    wheel = read_variant(files_of(written)[label])
    metadata = BytesParser().parsebytes(wheel.info["METADATA"])
    assert metadata["Version"] == "0.1.0"
    assert metadata.get_all("Requires-Dist") == ["torch>=2.10"]


def test_the_plain_wheel_of_a_partial_release_holds_what_the_variants_hold(written) -> None:
    """A partial fat wheel has a local version, which every installer would prefer."""
    plain = read_wheel(files_of(written)["plain"])
    names = {Path(name).name for name in plain.binaries}
    assert plain.version == "0.1.0"
    assert names == {
        "glue-stable210.so",
        "kernels-cpu.so",
        "kernels-cuda12.so",
        "kernels-cuda13.so",
    }


def test_the_plain_wheel_of_a_whole_release_is_the_fat_wheel(own_settings) -> None:
    manifest = make_dist(own_settings, is_whole=True)
    write_variants(own_settings, Console(quiet=True))
    assert manifest.fat is not None
    assert len([*(own_settings.variant_index / "tiny-client").glob("*.whl")]) == 4
    assert digest(files_of(own_settings)["plain"]) == manifest.fat.sha256


def test_the_same_wheels_give_the_same_bytes(written, own_settings) -> None:
    make_dist(own_settings)
    write_variants(own_settings, Console(quiet=True))
    first, second = (
        {path.name: digest(path) for path in (one.variant_index / "tiny-client").iterdir()}
        for one in (written, own_settings)
    )
    assert first == second


def test_cells_that_were_not_built_have_no_variant(own_settings) -> None:
    make_dist(own_settings, ["stable210-cpu"])
    write_variants(own_settings, Console(quiet=True))
    assert {*files_of(own_settings)} == {"null", "plain"}


def test_wheels_of_an_earlier_index_are_gone(own_settings) -> None:
    old = own_settings.variant_index / "tiny-client" / "tiny_client-0.0.1-py3-none-any-cu11.whl"
    old.parent.mkdir(parents=True)
    old.touch()
    make_dist(own_settings)
    write_variants(own_settings, Console(quiet=True))
    assert not old.exists()


def test_without_a_wheel_of_the_stable_glue_it_says_what_to_run(own_settings) -> None:
    make_dist(own_settings, ["aten24-abi0-cpu"])
    with pytest.raises(ReleaseError, match=r"scripts/build_all.sh --variants stable210-cpu"):
        write_variants(own_settings, Console(quiet=True))


def test_a_thin_wheel_that_was_changed_is_refused(own_settings) -> None:
    manifest = make_dist(own_settings)
    (own_settings.dist / str(manifest.cells["stable210-cu12"].wheel)).write_bytes(b"changed")
    with pytest.raises(ReleaseError, match="is not the file that was made"):
        write_variants(own_settings, Console(quiet=True))
    assert not own_settings.variant_index.exists()


@pytest.mark.parametrize(
    ("name", "is_variant"),
    [
        ("tiny_client-0.1.0-py3-none-manylinux_2_34_x86_64-cu12.whl", True),
        ("tiny_client-0.1.0-1-py3-none-manylinux_2_34_x86_64-null.whl", True),
        ("tiny_client-0.1.0-variants.json", True),
        ("tiny_client-0.1.0-1-py3-none-manylinux_2_34_x86_64.whl", False),
        ("tiny_client-0.1.0+stable.cu12-py3-none-manylinux_2_34_x86_64.whl", False),
        ("tiny_client-0.1.0.tar.gz", False),
    ],
)
def test_a_name_says_whether_a_file_is_of_variants(name, is_variant) -> None:
    assert is_of_variants(name) == is_variant


@pytest.mark.parametrize("target", ["pypi", "testpypi", "./public"])
def test_no_target_of_an_upload_gets_a_variant(target, own_settings, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    make_dist(own_settings, is_whole=True)
    write_variants(own_settings, Console(quiet=True))
    manifest = parse(own_settings.manifest)
    kind = "thin" if target == "./public" else "fat"
    added = [
        describe_artefact(own_settings.dist, path.relative_to(own_settings.dist).as_posix(), kind)
        for path in sorted((own_settings.variant_index / "tiny-client").glob("*-cu1?.*"))
    ]
    write(manifest.model_copy(update={"artefacts": added}), own_settings.manifest)
    with pytest.raises(ReleaseError, match=r"cu12\.whl, .*cu13\.whl is of wheel variants"):
        upload(target, own_settings, Console(quiet=True), dry_run=True)


def test_the_manifest_of_what_may_be_uploaded_lists_no_variant(own_settings) -> None:
    make_dist(own_settings)
    write_variants(own_settings, Console(quiet=True))
    listed = [artefact.path for artefact in parse(own_settings.manifest).artefacts]
    assert not any(is_of_variants(Path(path).name) for path in listed)


def test_the_index_of_variants_is_no_target_of_an_upload(own_settings) -> None:
    make_dist(own_settings)
    target = f"{own_settings.variant_index}/"
    with pytest.raises(ReleaseError, match="name a folder for this alone"):
        upload(target, own_settings, Console(quiet=True), dry_run=True)


@pytest.fixture
def nothing_runs(monkeypatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise AssertionError("it was not refused")

    for name in ("run_for_platform", "merge", "write_variants"):
        monkeypatch.setattr(command, name, fail)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--variants", "--upload", "pypi"], "--upload takes no wheel variants"),
        (["--variants", "--shard", "1/2"], "give it to --merge"),
        (["--variants", "--list"], "--list does nothing with --variants"),
        (["--variants", "--recipe", "host"], "--recipe does nothing with --variants"),
    ],
)
@pytest.mark.usefixtures("nothing_runs")
def test_variants_are_refused_beside_what_would_leave_them_out(options, message, capsys) -> None:
    assert main(options) == 2
    assert message in capsys.readouterr().out.replace("\n", " ")


def test_without_a_selector_a_run_builds_the_cells_of_the_stable_glue(monkeypatch) -> None:
    chosen: list[list[str]] = []

    def run(selectors, options, settings) -> int:
        chosen.append(list(selectors))
        return 0

    monkeypatch.setattr(command, "run_for_platform", run)
    assert main(["--variants", "--project", str(CHECKOUT)]) == 0
    assert chosen == [["stable210-*"]]


def test_a_merge_writes_variants_of_what_it_joined(monkeypatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(command, "merge", lambda *_: calls.append("merge") or 0)
    monkeypatch.setattr(command, "write_variants", lambda *_: calls.append("variants"))
    assert main(["--merge", "a", "--variants", "--project", str(CHECKOUT)]) == 0
    assert calls == ["merge", "variants"]
