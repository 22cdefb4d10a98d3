"""What looking costs beside the imports themselves: of one package, and of twenty.

    python -m measurements.environments.looking_cost [--folder DIR] [--rounds N]

It needs what make_environments.py needs, and a machine on which nothing else runs. Each package has
an extension, and imports another part of torch. It prints the seconds that pass, and those of the
processors, for the imports one after the other and for `torch-doctor` on the packages, the least of
some rounds; then the most that the doctor may take, and exits with 1 if it takes more.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measurements.environments.cases import Case
from measurements.environments.environment import Environment
from measurements.environments.make_environments import FOLDER, make_base

PARTS = ("distributed", "utils.data", "fx", "jit", "quantization", "sparse", "special", "fft")
PACKAGES = 20
#: What the doctor may take beside the imports, which of several run on all processors.
SECONDS_MORE = {1: 2.0, PACKAGES: 5.0}
_MAKE = f"""
parts=({" ".join(PARTS)})
for number in $(seq {PACKAGES}); do
  module "$SITE/looked$number/_C.cpython-311-x86_64-linux-gnu.so" _C
  part=${{parts[$((number % {len(PARTS)}))]}}
  printf 'import torch.%s\\nfrom . import _C\\n' "$part" >"$SITE/looked$number/__init__.py"
  distribution looked$number 1.0 torch
done
"""


@dataclass(frozen=True)
class Cost:
    """Seconds, and processor seconds of all processes."""

    seconds: float
    processor: float


def least(work: Callable[[], None], rounds: int) -> Cost:
    """The least of some rounds; other work on the machine makes each only slower."""
    costs = [_cost(work) for _ in range(rounds)]
    return Cost(min(one.seconds for one in costs), min(one.processor for one in costs))


def _cost(work: Callable[[], None]) -> Cost:
    start, before = time.monotonic(), os.times()
    work()
    after = os.times()
    processor = after.children_user + after.children_system
    processor -= before.children_user + before.children_system
    return Cost(time.monotonic() - start, processor)


def _run(place: Environment, script: str) -> None:
    run = place.run(script, 600)
    if not run.succeeds:
        raise RuntimeError(run.output[-2000:])


def measure(place: Environment, count: int, rounds: int) -> bool:
    """Print a line on `count` packages; returns whether the doctor keeps to its limit."""
    names = [f"looked{number}" for number in range(1, count + 1)]
    one_by_one = "; ".join(f'python -c "import {name}"' for name in names)
    imports = least(lambda: _run(place, one_by_one), rounds)
    doctor = f'"{sys.executable}" -I -c "$DOCTOR" "{Path(__file__).resolve().parents[2]}"'
    asked = f'{doctor} --python "$(command -v python)" {" ".join(names)}'
    looked = least(lambda: _run(place, asked), rounds)
    jobs = min(count, len(os.sched_getaffinity(0)))
    limit = imports.seconds / jobs + SECONDS_MORE[count]
    is_kept = looked.seconds <= limit
    print(
        f"{count}: imports {imports.seconds:.1f} s ({imports.processor:.1f} s of processors), "
        f"torch-doctor {looked.seconds:.1f} s ({looked.processor:.1f} s), at most {limit:.1f} s: "
        f"{'kept' if is_kept else 'NOT KEPT'}",
        flush=True,
    )
    return is_kept


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    case = Case("looking", "", "", "cpu213", "", works=True, make=_MAKE)
    place = Environment(make_base("cpu213", folder), folder / "looking", case)
    try:
        place.make()
        print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
        are_kept = [measure(place, count, options.rounds) for count in SECONDS_MORE]
        return 0 if all(are_kept) else 1
    finally:
        place.remove()


if __name__ == "__main__":
    sys.exit(main())
