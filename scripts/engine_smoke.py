"""Compares the installed package's op with the op's definition; both come from `PACKAGE.smoke`.

    python engine_smoke.py [--outside DIR] [--glue NAME] [--json FILE]

More than `python -m PACKAGE`, it compares 16-bit types and every shape of `smoke.SHAPES`, checks
gradients by finite differences, counts OpenMP runtimes and can require one glue. The exit code is 0
if every check passes, else 1. If EMULATED is set, for a slow emulator, the script leaves out the
last and largest of several shapes, and does the live run of `python -m PACKAGE` in its own process.
"""

import argparse
import json
import os
import re
import sys
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

MATRIX = (Path(__file__).resolve().parents[1] / "build_matrix.yaml").read_text(encoding="utf-8")
PACKAGE = re.findall(r"^  package: *(\S+)", MATRIX, re.MULTILINE)[0]
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3, "bfloat16": 3e-2}
OPENMP = re.compile(r"lib(gomp|omp|iomp5|omp5)\b")


def openmp_runtimes(maps: str) -> list[str]:
    """The OpenMP runtimes among a process's mapped files, from the text of /proc/self/maps.

    Two runtimes in a process are two thread pools that compete for the processors.
    """
    paths = {line.split(None, 5)[5] for line in maps.splitlines() if line.count("/")}
    return sorted(path for path in paths if OPENMP.match(Path(path).name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outside", type=Path, help="fail if the package lies in this folder")
    parser.add_argument("--glue", help="fail if another glue was chosen")
    parser.add_argument("--json", type=Path, help="store the facts in this file")
    args = parser.parse_args()
    package = import_module(PACKAGE)
    folder = Path(str(package.__file__)).resolve().parent
    if args.outside and folder.is_relative_to(args.outside.resolve()):
        print(f"FAILED: this is the {PACKAGE} in the sources ({folder}), not the installed one")
        return 1
    import torch

    live_run = import_module(f"{PACKAGE}.engine.runtime.live_run")
    loader = import_module(f"{PACKAGE}.loader").LOADER
    smoke = import_module(f"{PACKAGE}.smoke")
    devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    comparisons: list[dict[str, Any]] = []
    failed = 0

    def check(good: bool, text: str) -> None:
        nonlocal failed
        failed += not good
        print(f"{'ok    ' if good else 'FAILED'} {text}")

    shapes = getattr(smoke, "SHAPES", [()])
    if os.environ.get("EMULATED"):
        shapes = shapes[:-1] or shapes
        for found in smoke.run()["devices"]:
            check(found["ok"], f"live run on {found['device']}: {found['error'] or 'agrees'}")
    for device, (dtype, tolerance), shape in product(devices, TOLERANCES.items(), shapes):
        worst = live_run.difference(smoke.parts(*shape), device, dtype)
        comparisons.append({"device": device, "dtype": dtype, "shape": shape, "worst": worst})
        text = f"{device} {dtype} {'x'.join(map(str, shape))}: {worst:.1e}, allowed {tolerance:.0e}"
        check(worst <= tolerance, text)  # the comparison is False for NaN
    op, _, samples = smoke.parts()
    leaves = [sample.requires_grad_() for sample in samples]
    gradcheck = torch.autograd.gradcheck(op, leaves, raise_exception=False)
    check(gradcheck, "gradcheck in float64")
    runtimes = openmp_runtimes(Path("/proc/self/maps").read_text(encoding="utf-8"))
    check(len(runtimes) < 2, f"OpenMP runtimes, at most one: {', '.join(runtimes) or 'none'}")
    loaded = loader.loaded()
    variant = loaded.variant if loaded else None
    good = args.glue is None or str(variant).startswith(f"{args.glue}-")
    check(good, f"chosen {variant}, needed {args.glue or 'any'}")
    facts = {
        "variant": variant,
        "binaries": [path.name for path in loaded.paths if path] if loaded else [],
        "openmp": [Path(path).name for path in runtimes],
        loader.project.distribution: package.__version__,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "devices": devices,
        "package": str(folder),
        "gradcheck": gradcheck,
        "failed": failed,
        "comparisons": comparisons,
    }
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    print(f"{PACKAGE} {package.__version__}, torch {torch.__version__}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
