"""What a conda user gets: the whole matrix, rendered and solved for machines of every kind.

The recipe is really built, without content, against a channel in conda-forge's shape; a solver then
chooses from what came out. Nothing is downloaded.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from packaging.version import Version
from release_places import REPO

from torchship.release import ReleaseError
from torchship.release.matrix.cells import all_cells, for_conda
from torchship.release.steps.conda.stubs import OLDER, stubs

pytest.importorskip("rattler")
pytest.importorskip("rattler_build")

from machines import machine

from torchship.release.steps.conda.worker import solve

RECIPE = REPO / "recipe" / "recipe.yaml"
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
# The builds of pytorch that a package for this device runs beside.
BUILDS = {"cpu": "*_py*", "cuda": "*cuda*_py*"}
DRIVERS = [None, "12.4", "12.9", "13.0", "13.2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("conda")


@pytest.fixture(scope="module")
def ask(matrix_channels, folder):
    """Solves for `lltm` and what else is named, on a machine with that driver."""

    def ask(driver: str | None, *specs: str, **other: str) -> dict[str, str]:
        facts = machine(driver, **other)
        solution = solve(
            matrix_channels, ["lltm", *specs], facts, subdir="linux-64", cache=folder / "repodata"
        )
        return {name: record.file_name for name, record in solution.items()}

    return ask


def depends(folder: Path) -> dict[str, set[str]]:
    """Build string and dependencies of every package that was built."""
    from rattler_build import Package

    packages = (Package.from_file(str(path)) for path in (folder / "channel").rglob("*.conda"))
    return {package.build_string: set(package.depends) for package in packages}


def build_of(file_name: str) -> str:
    return file_name.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 1)[1]


def fitting(matrix, python: str, minor: str) -> bool:
    return python in matrix.torch[minor].pythons


def test_a_package_says_whose_it_is_and_of_which_commit(matrix, matrix_built, tmp_path) -> None:
    import rattler.package_streaming

    package = next((matrix_built / "channel").glob("linux-64/*.conda"))
    rattler.package_streaming.extract(package, tmp_path / "extracted")
    metadata = json.loads((tmp_path / "extracted" / "info" / "about.json").read_text())
    assert metadata["home"] == metadata["dev_url"] == matrix.project.url
    assert metadata["doc_url"].startswith(matrix.project.url)
    extra = {"recipe-maintainers": matrix.project.maintainers, "commit": "c" * 40}
    assert metadata["extra"] == extra and metadata["channels"] == []


def test_there_is_one_package_for_each_variant(matrix, matrix_built) -> None:
    expected = set()
    for cell in all_cells(matrix):
        if for_conda(cell):
            device = "cpu"
            number = 100 * cell.stable
            if cell.cuda_major:
                toolkit = matrix.kernels[f"cuda{cell.cuda_major}"].toolkit
                device = "cuda" + toolkit.replace(".", "")
                number = number + 200
            expected.add(f"{device}_{cell.glue.replace('-', '_')}_{number}")
    assert set(depends(matrix_built)) == expected


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_stable_packages_bound_pytorch_below_only(matrix, matrix_built, device) -> None:
    dependencies = depends(matrix_built)
    names = [name for name in dependencies if name.startswith(device) and "stable" in name]
    assert len(names) == (1 if device == "cpu" else 2)
    for name in names:
        (pytorch,) = [need for need in dependencies[name] if need.startswith("pytorch")]
        assert pytorch == f"pytorch >={matrix.stable.target}.0 {BUILDS[device]}"


def test_aten_packages_pin_the_minor_of_pytorch(matrix, matrix_built) -> None:
    dependencies = {k: v for k, v in depends(matrix_built).items() if "aten" in k}
    assert len(dependencies) >= 12
    for name, needs in dependencies.items():
        (pytorch,) = [need for need in needs if need.startswith("pytorch")]
        minor = next(m for m in matrix.minors() if f"aten{m.replace('.', '')}_" in name)
        device = "cuda" if name.startswith("cuda") else "cpu"
        assert pytorch == f"pytorch {matrix.torch[minor].conda} {BUILDS[device]}"


def test_cuda_packages_bind_cuda_version_to_their_major(matrix_built) -> None:
    for name, needs in depends(matrix_built).items():
        bounds = {need for need in needs if "cuda" in need and not need.startswith("pytorch")}
        major = int(name[4:6]) if name.startswith("cuda") else None
        expected = {f"cuda-version >={major},<{major + 1}", f"__cuda >={major}"} if major else set()
        assert bounds == expected


def test_no_package_is_for_one_python(matrix_built) -> None:
    for needs in depends(matrix_built).values():
        assert [t for t in needs if t.split()[0] in ("python", "python_abi")] == ["python >=3.10"]
    index = json.loads((matrix_built / "channel/linux-64/repodata.json").read_text())
    assert {entry["noarch"] for entry in index["packages.conda"].values()} == {"python"}


@pytest.mark.slow  # it builds the recipe for the whole matrix again
def test_without_ignoring_run_exports_the_minor_would_be_pinned(make_channels, tmp_path) -> None:
    """The stubs export what conda-forge's pytorch does, so the tests above do not pass in vain."""
    content = RECIPE.read_text(encoding="utf-8")
    start = content.index("  ignore_run_exports:")
    end = content.index("tests:\n")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(content[:start] + content[end:], encoding="utf-8")
    make_channels(tmp_path / "matrix", recipe)
    needs = depends(tmp_path / "matrix")["cuda130_stable210_300"]
    assert "pytorch >=2.13.0,<2.14.0a0" in needs
    assert "cuda-version >=13.0,<14" in needs


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.slow
def test_every_pytorch_on_every_python_gets_its_package(matrix, ask, driver) -> None:
    wrong = []
    for python, minor in itertools.product(PYTHONS, matrix.minors()):
        if not fitting(matrix, python, minor):
            continue
        solution = ask(driver, f"python {python}.*", f"pytorch {minor}.*")
        ours = build_of(solution["lltm"])
        theirs = build_of(solution["pytorch"])
        lane = f"aten{minor.replace('.', '')}" if matrix.torch[minor].aten else "stable210"
        device = "cpu" if driver is None else "cuda"
        good = lane in ours and ours.startswith(device) and theirs.startswith(device)
        # cuda128_... beside cuda129_...: the major is what counts.
        if not good or (driver and ours[4:6] != theirs[4:6]):
            wrong.append((python, minor, ours, theirs))
    assert wrong == []


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("python", PYTHONS)
def test_who_asks_for_nothing_else_gets_the_newest_pytorch(matrix, ask, driver, python) -> None:
    solution = ask(driver, f"python {python}.*")
    newest = max((m for m in matrix.minors() if fitting(matrix, python, m)), key=Version)
    assert solution["pytorch"].startswith(f"pytorch-{newest}.")
    assert solution["lltm"].split("-")[2].startswith("cpu" if driver is None else "cuda")


@pytest.mark.parametrize(("driver", "major"), [("12.4", 12), ("12.9", 12), ("13.0", 13)])
def test_the_cuda_major_is_that_of_the_driver(ask, driver, major) -> None:
    solution = ask(driver, "python 3.12.*")
    assert build_of(solution["lltm"]).startswith(f"cuda{major}")
    assert build_of(solution["pytorch"]).startswith(f"cuda{major}")


def test_an_older_pytorch_of_cuda_12_runs_on_a_newer_driver(ask) -> None:
    solution = ask("13.2", "pytorch 2.12.* cuda129*")
    assert build_of(solution["lltm"]).startswith("cuda128_stable210")


def test_a_cpu_pytorch_is_served_beside_a_gpu(ask) -> None:
    solution = ask("13.0", "pytorch * cpu*")
    assert build_of(solution["lltm"]).startswith("cpu_")


REFUSALS = {
    "cuda without a gpu": (None, ["lltm * cuda*"], {}, "__cuda"),
    "cuda 13 on a driver 12": ("12.8", ["lltm * cuda130*"], {}, "__cuda >=13"),
    "python too new": (None, ["pytorch 2.4.*", "python 3.13.*"], {}, "python 3.12"),
    "torch too old": (None, ["pytorch 2.3.*"], {}, "pytorch 2.3.*"),
    "glibc too old": (None, [], {"glibc": "2.17"}, "__glibc >=2.28"),
    "python too old": (None, ["python 3.9.*"], {}, "python 3.9.*"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_had_is_refused_with_the_reason(ask, case) -> None:
    driver, specs, other, reason = REFUSALS[case]
    with pytest.raises(ReleaseError) as error:
        ask(driver, *specs, **other)
    assert reason in str(error.value)
    assert "on a machine with __linux" in str(error.value)


def test_the_stubs_have_the_shape_of_conda_forge(matrix) -> None:
    pytorch = [stub for stub in stubs(matrix) if stub.name == "pytorch"]
    gpu = [stub for stub in pytorch if stub.build.startswith("cuda")]
    assert len(gpu) >= len(pytorch) / 2
    assert all("__cuda" in s.depends and any("cuda-version" in d for d in s.depends) for s in gpu)
    assert not [s.build for s in pytorch if s not in gpu and "__cuda" in s.depends]
    exports = [export for stub in pytorch for export in stub.run_exports["weak"]]
    assert all("<" in export for export in exports)
    releases = {torch.release for torch in matrix.torch.values()}
    assert {stub.version for stub in pytorch} == {*releases, OLDER[0]}


@pytest.mark.parametrize("minor", ["2.8", "2.9"])
def test_the_stubs_have_no_build_that_conda_forge_never_made(matrix, minor) -> None:
    """conda-forge began with CUDA 13.0 at pytorch 2.10."""
    builds = [s.build for s in stubs(matrix) if s.name == "pytorch" and s.version.startswith(minor)]
    assert {build.split("_")[0] for build in builds} == {"cpu", "cuda129"}
