"""What is read of installed distributions is what importlib.metadata reads; in site folders that
are drawn, and in the real one of this environment."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import io
import os
import random
import sysconfig
from pathlib import Path

import pytest
from draws import differences, seeds
from packaging.utils import canonicalize_name

from torchship.doctor.environment import installed, metadata
from torchship.doctor.environment.owner import find_owner
from torchship.judge.target import Target

SITE = Path(sysconfig.get_path("purelib"))
NAMES = ("alpha", "Alpha.Beta", "foo-bar", "foo_bar", "torch")
NEEDS = (
    "numpy",
    "torch (>=2.9)",
    'Torch==2.9.1 ; sys_platform == "linux"',
    "x[a,b]<3; extra == 'gpu'",
    "y @ https://example.org/y-1.0-py3-none-any.whl",
)


def drawn_files(draw: random.Random, top: str) -> list[str]:
    """The names in a RECORD: quoted, in other folders, and with odd starts."""
    files = [f"{top}/__init__.py", f"{top}/_C.cpython-311-x86_64-linux-gnu.so"]
    files += draw.sample(
        (
            f"{top}/a, b.so",
            f'{top}/a "quoted" name.so',
            f"../../lib/lib{top}.so.1",
            f"./{top}/dot.so",
            f"{top}.libs/libx-1a2b3c4d.so",
            f"{top}/data/räksmörgås.so",
        ),
        draw.choice((0, 1, 2, 4)),
    )
    return files


def write_distribution(draw: random.Random, site: Path, name: str, release: str) -> Path:
    """A distribution as pip, setuptools or a distributor leaves it; returns its metadata."""
    top = name.lower().replace("-", "_").replace(".", "_")
    kind = draw.choice(("dist-info", "dist-info", "egg-info", "egg file"))
    shown = draw.choice((name, name.replace("-", "_"), name.lower()))
    info = site / f"{shown}-{release}.{'dist-info' if kind == 'dist-info' else 'egg-info'}"
    if info.exists():
        return info
    needs = draw.sample(NEEDS, draw.choice((0, 1, 3)))
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {release}"]
    if draw.random() < 0.5:
        lines.append(
            "Requires-Python: >=3.8,\n <4" if draw.random() < 0.3 else "Requires-Python: >=3.8"
        )
    if kind == "dist-info" or draw.random() < 0.3:
        lines += [f"Requires-Dist: {need}" for need in needs]
    ending = draw.choice(("\n", "\r\n"))
    content = "\n".join([*lines, "", "Name: not-this", "The description."]).replace("\n", ending)
    if kind == "egg file":
        info.write_bytes(content.encode())
        return info
    info.mkdir(parents=True)
    (info / ("METADATA" if kind == "dist-info" else "PKG-INFO")).write_bytes(content.encode())
    if kind == "egg-info" and draw.random() < 0.5:
        (info / "requires.txt").write_text("numpy\n\n[gpu]\nx<3\n\n[:python_version<'3.9']\nold\n")
    names = drawn_files(draw, top)
    for file in names:
        path = Path(os.path.normpath(site / file))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    if kind == "dist-info":
        rows = io.StringIO()
        digest = base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()).decode()
        writer = csv.writer(rows, lineterminator="\n")
        writer.writerows([file, f"sha256={digest.rstrip('=')}", len(name)] for file in names)
        writer.writerow([f"{info.name}/RECORD", "", ""])
        (info / "RECORD").write_text(rows.getvalue(), encoding="utf-8")
    else:
        (info / "installed-files.txt").write_text("".join(f"../{file}\n" for file in names))
    return info


def drawn_sites(draw: random.Random, folder: Path) -> list[Path]:
    sites = []
    for number in range(draw.choice((1, 2, 3))):
        site = folder / str(number) / "lib" / "python3" / "site-packages"
        site.mkdir(parents=True)
        for name in draw.sample(NAMES, draw.choice((1, 2, 3))):
            for release in draw.sample(("1.0", "2.0", "10.1+cu128"), draw.choice((1, 1, 1, 2))):
                write_distribution(draw, site, name, release)
        sites.append(site)
    return sites


def theirs(sites: list[Path]) -> dict[str, importlib.metadata.Distribution]:
    """The distributions by name, those first that Python finds first."""
    found: dict[str, importlib.metadata.Distribution] = {}
    for one in importlib.metadata.distributions(path=[str(site) for site in sites]):
        if one.metadata["Name"]:
            found.setdefault(canonicalize_name(one.metadata["Name"]), one)
    return found


def compare(sites: list[Path]) -> list[str]:
    """What differs between our reading of some site folders and importlib.metadata's."""
    target = Target()
    found, known = installed.installed(target, sites), theirs(sites)
    wrong = [f"{name}: only one has it" for name in found.keys() ^ known.keys()]
    for name in found.keys() & known.keys():
        ours, their = found[name], known[name]
        pairs: dict[str, tuple[object, object]] = {
            "version": (ours.version, their.version),
            "place": (ours.place, Path(str(their._path))),  # type: ignore[attr-defined]
            "Requires-Python": (
                ours.core.requires_python,
                " ".join((their.metadata["Requires-Python"] or "").split()),
            ),
            "requirements": (
                ["".join(need.split()) for need in ours.core.needs],
                ["".join(need.split()) for need in their.requires or ()],
            ),
        }
        if their.read_text("RECORD"):
            pairs["files"] = (
                {file.path for file in metadata.listed_files(target, ours.place)},
                {Path(os.path.normpath(str(file.locate()))) for file in listed_by(their)},
            )
        wrong += [f"{name} {part}: {a} is {b}" for part, (a, b) in pairs.items() if a != b]
    return wrong


def listed_by(one: importlib.metadata.Distribution) -> list[importlib.metadata.PackagePath]:
    """The files that RECORD lists. Before Python 3.12, installed-files.txt is not read."""
    return list(one.files or ()) if one.read_text("RECORD") else []


def test_drawn_site_folders_are_read_as_importlib_metadata_reads_them(tmp_path: Path) -> None:
    wrong = []
    for seed in seeds(60):
        draw = random.Random(seed)
        wrong += compare(drawn_sites(draw, tmp_path / str(seed)))
    assert not wrong, differences(wrong)


@pytest.mark.slow
def test_the_real_site_folder_is_read_as_importlib_metadata_reads_it() -> None:
    wrong = compare([SITE])
    assert not wrong, differences(wrong)


@pytest.mark.slow
def test_every_listed_object_has_the_owner_that_lists_it(tmp_path: Path) -> None:
    wrong = []
    target = Target()  # which remembers the folders of this environment
    for seed in seeds(40):
        draw = random.Random(f"owner {seed}")
        (tmp_path / str(seed)).mkdir()
        sites = drawn_sites(draw, tmp_path / str(seed))
        for name, one in theirs(sites).items():
            for file in listed_by(one):
                path = Path(os.path.normpath(str(file.locate())))
                if ".so" not in path.name:
                    continue
                owner = find_owner(target, path, sites)
                if owner is None or canonicalize_name(owner.name) != name:
                    wrong.append(f"{path} is not of {name} but of {owner and owner.name}")
    assert not wrong, differences(wrong)
