"""Tries which wheel installers take from an index of wheel variants, driver by driver.

    python measurements/wheel_variants.py [FOLDER]
    python measurements/wheel_variants.py --draw

FOLDER is what `scripts/build_all.sh --variants` has written (default: dist/variants). Every
installer installs from it into an empty folder, once for each driver that uv is told to find. The
results are stored in measurements/results/wheel_variants.json, from which docs/ship/variants.md is
drawn; `--draw` only draws. The program needs neither a GPU nor the network. `--placeholders` says
that kernels in the wheels are placeholders: what installers take is the same, and no sizes are
stored.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict, cast

REPO = Path(__file__).resolve().parents[1]
sys.path.append(str(REPO))

from measurements import storage  # noqa: E402
from torchship.release.generated import Part, filled  # noqa: E402
from torchship.release.shell import output_of  # noqa: E402
from torchship.release.support_table import row  # noqa: E402

PATH = storage.RESULTS / "wheel_variants.json"
PAGE = REPO / "docs" / "ship" / "variants.md"
#: What uv takes for the newest CUDA version of the driver, instead of asking the machine.
FORCED_DRIVER = "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION"
#: The drivers by their names in the table. No variant runs with a driver of version 0.0.
DRIVERS = {"none": "0.0", "11.8": "11.8", "12.8": "12.8", "13.0": "13.0", "13.2": "13.2"}
PLAIN = "plain"
UV = str(Path(sys.executable).with_name("uv"))
FLAG = "--preview-features wheel-variants"


class Wheel(TypedDict):
    """A wheel of the index, and its size in bytes."""

    label: str
    name: str
    bytes: int


class Results(TypedDict):
    """What is stored."""

    command: str
    date: str
    commit: str
    uv: str
    pip: str
    wheels: list[Wheel]
    taken: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Installer:
    """An installer, and the command that installs from an index without requirements."""

    name: str
    command: tuple[str, ...]

    def take(self, distribution: str, index: Path, driver: str) -> str:
        """The label of the wheel that the installer takes with a driver, or PLAIN.

        Raises RuntimeError if it installs nothing.
        """
        with TemporaryDirectory() as name:
            folder = Path(name, "installed")
            command = [*self.command, "--index-url", index.resolve().as_uri()]
            command += ["--no-deps", "--target", str(folder), distribution]
            env = {**os.environ, FORCED_DRIVER: driver}
            # Settings of this machine could name other indexes.
            env = {key: value for key, value in env.items() if not key.startswith(("PIP_", "UV_"))}
            process = subprocess.run(command, env=env, cwd=name, capture_output=True, text=True)
            if process.returncode:
                raise RuntimeError(f"{shlex.join(command)}: {process.stderr}")
            return read_label(folder)


INSTALLERS = (
    Installer(
        f"`uv pip install {FLAG}`",
        (UV, "pip", "install", "--no-config", "--no-cache", *FLAG.split()),
    ),
    Installer("`uv pip install`", (UV, "pip", "install", "--no-config", "--no-cache")),
    Installer(
        "`pip install`", (sys.executable, "-m", "pip", "--isolated", "install", "--no-cache-dir")
    ),
)


def read_label(folder: Path) -> str:
    """The label of the one wheel that is installed in a folder; PLAIN for one without."""
    (info,) = folder.glob("*.dist-info")
    path = info / "variant.json"
    if not path.exists():
        return PLAIN
    (label,) = json.loads(path.read_text())["variants"]
    return str(label)


def list_wheels(folder: Path) -> list[Wheel]:
    """The wheels of a distribution's folder, the plain one last."""
    wheels = []
    for path in sorted(folder.glob("*.whl")):
        parts = path.stem.split("-")
        label = parts[5] if len(parts) == 6 else PLAIN
        wheels.append(Wheel(label=label, name=path.name, bytes=path.stat().st_size))
    return sorted(wheels, key=lambda wheel: (wheel["label"] == PLAIN, wheel["label"] != "null"))


def measure(index: Path, *, has_placeholders: bool) -> Results:
    """Tries every installer with every driver."""
    (folder,) = (path.parent for path in index.glob("*/*-variants.json"))
    taken = {
        installer.name: {
            name: installer.take(folder.name, index, driver) for name, driver in DRIVERS.items()
        }
        for installer in INSTALLERS
    }
    return Results(
        command="python measurements/wheel_variants.py" + " --placeholders" * has_placeholders,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        commit=(output_of("git", "rev-parse", "HEAD", cwd=REPO) or "unknown").strip(),
        uv=(output_of(UV, "--version") or "unknown").split()[1],
        pip=(output_of(sys.executable, "-m", "pip", "--version") or "unknown").split()[1],
        wheels=[] if has_placeholders else list_wheels(folder),
        taken=taken,
    )


def draw_taken(results: Results) -> str:
    """Which wheel every installer takes, by driver."""
    lines = [
        row("installer", *(f"driver: {name}" for name in DRIVERS)),
        "|---" * (len(DRIVERS) + 1) + "|",
        *(
            row(name, *(labels[driver] for driver in DRIVERS))
            for name, labels in results["taken"].items()
        ),
        "",
        f"Measured on {results['date']} with uv {results['uv']} and pip {results['pip']} by "
        f"`{results['command']}`; the data is in "
        f"`measurements/results/{PATH.name}`.",
    ]
    return "\n".join(lines)


def draw_sizes(results: Results) -> str:
    """The size of every wheel."""
    if not results["wheels"]:
        return (
            "The sizes were not measured yet: in that run, the CUDA kernels were placeholders. "
            "`scripts/build_all.sh --variants` prints them."
        )
    lines = [row("wheel", "for", "size"), "|---|---|---|"]
    purposes = {
        "null": "machines without an NVIDIA driver",
        PLAIN: "installers that do not know variants",
    }
    for wheel in results["wheels"]:
        label = wheel["label"]
        purpose = purposes.get(label, f"drivers of CUDA {label.removeprefix('cu')} and later")
        lines.append(row(f"`{label}`", purpose, f"{wheel['bytes'] / 1e6:.2f} MB"))
    return "\n".join(lines)


def draw(page: str, results: Results) -> str:
    """The page with the tables of the results."""
    parts = (Part("taken", draw_taken(results)), Part("sizes", draw_sizes(results)))
    for part in parts:
        page = filled(PAGE, page, part._replace(content=f"{part.content}\n"))
    return page


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("folder", nargs="?", type=Path, default=REPO / "dist" / "variants")
    parser.add_argument("--placeholders", action="store_true", help="store no sizes")
    parser.add_argument("--draw", action="store_true", help="only draw what is stored")
    options = parser.parse_args()
    if not options.draw:
        results = measure(options.folder, has_placeholders=options.placeholders)
        storage.save(results, PATH)
    stored = cast(Results, storage.load(PATH))
    PAGE.write_text(draw(PAGE.read_text(encoding="utf-8"), stored), encoding="utf-8")


if __name__ == "__main__":
    main()
