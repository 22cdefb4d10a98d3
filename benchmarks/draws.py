"""Layers and steps drawn at random by a seed; docs/numbers/speed/random.md says how."""

import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch

from . import baselines, report, schema, session
from .contender import DTYPES, OURS
from .schema import Report, Size
from .sizes import forward_elements, forward_flops

AGAIN = 3
STATES = (100, 200, 300, 500, 650, 700, 1000, 1150, 1500, 2000, 2400, 3000)
"""State sizes that papers use; half of the layers take one of these."""
PEERS = {"layer": "lstm", "step": "lstmcell"}
KINDS = {"cuda": ("float32", "tf32", "float16", "bfloat16"), "cpu": ("float32", "bfloat16")}
MOST_BYTES = 4e9
MOST_WORK = {"cuda": 2e13, "cpu": 2e10}
"""In operations of forward."""


class Draw(NamedTuple):
    size: Size
    dtype: str


def _between(rng: random.Random, low: int, high: int) -> int:
    """Log-uniform."""
    return min(high, int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))))


def _layer(rng: random.Random) -> Size:
    state = rng.choice(STATES) if rng.random() < 0.5 else rng.randint(16, 3072)
    return Size(_between(rng, 1, 512), rng.randint(16, 3072), state, _between(rng, 8, 2048))


def _step(rng: random.Random) -> Size:
    return Size(_between(rng, 1, 4096), _between(rng, 16, 4096), _between(rng, 16, 4096))


def draw(what: str, seed: int, count: int, device: str) -> list[Draw]:
    rng = random.Random(f"{what} {seed}")
    found: list[Draw] = []
    while len(found) < count:
        one = Draw((_layer if what == "layer" else _step)(rng), rng.choice(KINDS[device]))
        bytes_moved = forward_elements(one.size) * DTYPES[one.dtype].itemsize
        if bytes_moved <= MOST_BYTES and forward_flops(one.size) <= MOST_WORK[device]:
            found.append(one)
    return found


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Sets torch's flags for GEMMs and for cuDNN within the block."""
    flags = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [flag.allow_tf32 for flag in flags]
    for flag in flags:
        flag.allow_tf32 = allowed
    try:
        yield
    finally:
        for flag, value in zip(flags, before, strict=True):
            flag.allow_tf32 = value


def measure(
    found: Report, what: str, draws: list[Draw], again: int, options: session.Options
) -> None:
    every = baselines.LAYERS if what == "layer" else baselines.CELLS
    names = options.contenders or (PEERS[what], OURS)
    started = perf_counter()
    for one in draws:
        with tf32(one.dtype == "tf32"):
            chosen = replace(options, dtypes=(one.dtype,), contenders=names)
            session.run_sizes(found, [one.size], every, chosen, started)
        ratios = (r.value for r in report.ratios(found) if (r.size, r.dtype) == one)
        if again and min(ratios, default=1.0) < report.SLOWER:
            _repeat(found, one, what, again, options)


def _repeat(found: Report, one: Draw, what: str, again: int, options: session.Options) -> None:
    """Replace the results of this draw, for each pass, by the median of fresh processes."""
    size = one.size
    text = ",".join(map(str, astuple(size)[: 4 if what == "layer" else 3]))
    words = [sys.executable, "-m", "benchmarks", "random", "--what", what, "--again", "0"]
    for name in ("device", "threads", "seconds", "rounds"):
        words += [f"--{name}", str(getattr(options, name))]
    if options.contenders:
        words += ["--contenders", *options.contenders]
    runs = []
    for _ in range(again):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "again.json"
            command = [*words, "--only", text, one.dtype, "--json", str(path)]
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
            runs += [schema.read(path)] if path.exists() else []
    every = [(r, n) for n, run in enumerate(runs) for r in report.ratios(run)]
    for metric in report.PASSES:
        ratios = [(r.value, n) for r, n in every if r.metric == metric]
        if ratios:
            middle = runs[sorted(ratios)[len(ratios) // 2][1]]
            others = [r for r in found.results if (r.size, r.dtype, r.metric) != (*one, metric)]
            found.results = others + [r for r in middle.results if r.metric == metric]
    if options.json is not None:
        schema.write(found, options.json)
