"""How long the compatibility checker takes: each stage, and the whole as `import` runs it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch.utils.benchmark import Timer

from .package_path import prefer_installed
from .schema import Report, Result, Size, Skip
from .session import Options, new_report
from .stats import summarise


def stages(binaries: list[Path]) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    os.environ.setdefault("LLTM_CONDA_LOAD", "0")  # only the checker is wanted, nothing is loaded
    from lltm_conda import compat

    runtime = compat.probe_runtime(gpu=False)
    light = partial(compat.judge_file, light=True)

    def as_import() -> object:
        return compat.select(binaries, compat.probe_runtime(gpu=False), light)

    def everything() -> object:
        found = compat.probe_runtime(gpu=False)
        return compat.select(binaries, found, compat.judge_file, exhaustive=True)

    found: dict[str, Callable[[], object]] = {
        "probe the runtime": partial(compat.probe_runtime, gpu=False),
        "select, as import does": as_import,
        f"select, all {len(binaries)} binaries": everything,
    }
    for path in binaries:
        found[f"read {path.name}"] = partial(compat.read_binary, path)
        found[f"judge {path.name}"] = partial(compat.judge_file, path, runtime)
    return found


def default_binaries() -> list[Path]:
    """The package's own."""
    os.environ.setdefault("LLTM_CONDA_LOAD", "0")
    prefer_installed()
    import lltm_conda

    return sorted((Path(lltm_conda.__file__).parent / "lib").glob("*.so"))


def measure(line: str, rounds: int, binaries: list[Path] | None = None) -> Report:
    """Times in milliseconds, warm (files in the page cache)."""
    report = new_report("judge", line, Options(protocol="warm", rounds=rounds))
    paths = default_binaries() if binaries is None else binaries
    if not paths:
        report.skipped.append(
            Skip("judge", "the package carries no binary: build or install it (pip install .)")
        )
        return report
    timers = {
        name: Timer("stage()", globals={"stage": stage}) for name, stage in stages(paths).items()
    }
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for timer in timers.values():
        timer.timeit(1)
    for _ in range(rounds):
        for name, timer in timers.items():
            samples[name].append(timer.timeit(3).median * 1e3)
    for name, values in samples.items():
        report.results.append(
            Result.of(Size(1, 1, 1), "-", name, "time", "ms", summarise(values), rounds=values)
        )
    return report
