"""Compares the installed package's op with its definition; both come from `PACKAGE.smoke`.

    python engine_smoke.py PACKAGE [--outside DIR] [--glue NAME] [--json FILE]

More than `python -m PACKAGE`, it compares every shape of `smoke.SHAPES`, checks gradients by
finite differences, counts OpenMP runtimes and can require one glue. `smoke.DTYPES` says which
dtypes the op takes, `smoke.GRADIENTS` whether it has gradients. The exit code is 0 if every check
passes, else 1. If EMULATED is set, for a slow emulator, the script leaves out the last and largest
of several shapes, and does the live run of `python -m PACKAGE` itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import TypedDict

# For a smoke.py that says nothing of them.
DTYPES = ("float64", "float32", "float16", "bfloat16")
OPENMP = re.compile(r"lib(gomp|omp|iomp5|omp5)\b")


class Comparison(TypedDict):
    """The largest difference between the op and its definition; NaN if one of them has a NaN."""

    device: str
    dtype: str
    shape: tuple[int, ...]
    worst: float


@dataclass
class Checks:
    """Prints the result of each check, and counts the failures."""

    failed: int = 0

    def add(self, description: str, *, passed: bool) -> None:
        self.failed += not passed
        print(f"{'ok    ' if passed else 'FAILED'} {description}")


def openmp_runtimes(maps: str) -> list[str]:
    """The OpenMP runtimes among a process's mapped files, from the text of /proc/self/maps.

    Two runtimes in a process are two thread pools that compete for the processors.
    """
    paths = {line.split(None, 5)[5] for line in maps.splitlines() if line.count("/")}
    return sorted(path for path in paths if OPENMP.match(Path(path).name))


class Subject:
    """The package under test: its smoke.py, what that says of the op, and the devices to try."""

    def __init__(self, package: str) -> None:
        import torch

        self.live_run: ModuleType = import_module(f"{package}.engine.runtime.live_run")
        self.smoke: ModuleType = import_module(f"{package}.smoke")
        self.dtypes: tuple[str, ...] = getattr(self.smoke, "DTYPES", DTYPES)
        self.gradients: bool = getattr(self.smoke, "GRADIENTS", True)
        project = import_module(f"{package}.loader").LOADER.project
        self.devices: list[str] = [
            device
            for device in self.live_run.served_devices(project)
            if device == "cpu" or torch.cuda.is_available()
        ]


def compare_with_definition(subject: Subject, checks: Checks) -> list[Comparison]:
    """Every dtype and shape on every device."""
    smoke = subject.smoke
    shapes = getattr(smoke, "SHAPES", [()])
    if os.environ.get("EMULATED"):
        shapes = shapes[:-1] or shapes
        for result in smoke.run()["devices"]:
            description = f"live run on {result['device']}: {result['error'] or 'agrees'}"
            checks.add(description, passed=result["ok"])
    if not subject.devices:
        checks.add("nothing to compare: the operators serve CUDA, and there is no GPU", passed=True)
    comparisons: list[Comparison] = []
    for device, dtype, shape in product(subject.devices, subject.dtypes, shapes):
        worst = subject.live_run.difference(
            smoke.parts(*shape), device, dtype, gradients=subject.gradients
        )
        tolerance = subject.live_run.tolerance(dtype)
        comparisons.append({"device": device, "dtype": dtype, "shape": shape, "worst": worst})
        size = "x".join(map(str, shape))
        description = f"{device} {dtype} {size}: {worst:.1e}, allowed {tolerance:.0e}"
        checks.add(description, passed=worst <= tolerance)  # False for NaN
    return comparisons


def check_gradients(subject: Subject, checks: Checks) -> bool | None:
    """By finite differences; None if there is nothing to check."""
    import torch

    dtypes = [dtype for dtype in ("float64", "complex128") if dtype in subject.dtypes]
    if not (subject.gradients and dtypes and subject.devices):
        checks.add("gradcheck left out: no gradients, or neither in float64 nor here", passed=True)
        return None
    op, _, samples = subject.smoke.parts()
    arguments = subject.live_run.arguments_for(
        samples, subject.devices[0], getattr(torch, dtypes[0]), gradients=True
    )
    agree = bool(torch.autograd.gradcheck(op, arguments, raise_exception=False))
    checks.add(f"gradcheck in {dtypes[0]}", passed=agree)
    return agree


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("package", metavar="PACKAGE", help="the name of the Python package")
    add("--outside", type=Path, help="fail if the package lies in this folder")
    add("--glue", help="fail if another glue was chosen")
    add("--json", type=Path, help="store the facts in this file")
    options = parser.parse_args()
    name = options.package
    package = import_module(name)
    folder = Path(str(package.__file__)).resolve().parent
    if options.outside and folder.is_relative_to(options.outside.resolve()):
        print(
            f"FAILED: this is the {name} in the sources ({folder}), not the installed one; "
            "start the program in another folder, without PYTHONPATH"
        )
        return 1
    import torch

    loader = import_module(f"{name}.loader").LOADER
    checks = Checks()
    subject = Subject(name)
    comparisons = compare_with_definition(subject, checks)
    gradients_agree = check_gradients(subject, checks)
    runtimes = openmp_runtimes(Path("/proc/self/maps").read_text(encoding="utf-8"))
    names = ", ".join(runtimes) or "none"
    checks.add(f"OpenMP runtimes, at most one: {names}", passed=len(runtimes) < 2)
    loaded = loader.loaded()
    variant = loaded.variant if loaded else None
    glue = loaded.glue.name if loaded else None
    checks.add(
        f"chosen {variant}, needed {options.glue or 'any'}",
        # A glue with CUDA code is named after that too.
        passed=options.glue is None or f"{glue}-".startswith(f"{options.glue}-"),
    )
    facts = {
        "variant": variant,
        "binaries": [path.name for path in loaded.paths if path] if loaded else [],
        "openmp": [Path(path).name for path in runtimes],
        loader.project.distribution: loader.project.version,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "devices": subject.devices,
        "package": str(folder),
        "gradcheck": gradients_agree,
        "failed": checks.failed,
        "comparisons": comparisons,
    }
    if options.json:
        options.json.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    print(f"{name} {loader.project.version}, torch {torch.__version__}: {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
