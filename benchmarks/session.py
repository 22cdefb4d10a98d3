"""One run of a command that measures: build, check, measure, record, write."""

import datetime
import gc
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch

from . import baselines, machine, schema
from .check import WrongResult, check
from .compare import PASSES, SLOWER, ratios
from .contender import DTYPES, Builder, Cell, Inputs, Request, Unavailable, make_inputs
from .profiles import PROFILES
from .schema import Measured, Report, Size, Skip, Subject
from .settings import Settings
from .sizes import Draw
from .timing import PROTOCOLS, Run, interleave

SHORT = 8
"""The most steps of the sequence on which a layer is checked before the timing."""
WRONG = "WRONG RESULT"
"""How a skip's reason begins if the contender failed the check; the exit status is then 1."""
PEERS = {"layer": "lstm", "step": "lstmcell"}
"""The contender that `random` measures beside ours by default."""
PROGRAM = """\
from time import perf_counter
start = perf_counter()
import torch
middle = perf_counter()
import lltm_conda
print(middle - start, perf_counter() - middle)
"""


def new_report(settings: Settings) -> Report:
    """Set torch's threads; return a report without results, with the machine's present load."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"--device cuda needs a GPU and a CUDA build of torch; torch is {torch.__version__} "
            "and sees no GPU: use --device cpu"
        )
    if min(settings.rounds, settings.threads) < 1:
        raise ValueError("--rounds and --threads need a number of at least 1")
    torch.set_num_threads(settings.threads)
    return Report(
        command=settings.command,
        command_line=settings.command_line,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        device=settings.device,
        protocol=settings.protocol,
        threads=settings.threads,
        machine=machine.describe_machine(settings.device),
        software=machine.describe_software(),
        settings={
            "seconds": str(settings.seconds),
            "rounds": str(settings.rounds),
            "seed": str(settings.seed),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "cuda_matmul_allow_tf32": str(torch.backends.cuda.matmul.allow_tf32),
            "cudnn_allow_tf32": str(torch.backends.cudnn.allow_tf32),
        },
    )


def set_tf32(*, allowed: bool) -> None:
    """Set torch's tf32 flags of GEMMs and of cuDNN."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def run(report: Report, draws: Iterable[Draw], settings: Settings) -> None:
    """Measure draws until the deadline; write the file after each, so a killed run loses only one.

    `random` sets the flags for tf32 by the dtype, and measures a draw again if ours is
    slower.
    """
    if settings.protocol == "kernels" and settings.device != "cuda":
        raise ValueError("--protocol kernels counts GPU kernels: use --device cuda")
    started = perf_counter()
    for draw in draws:
        builders = _builders(draw, settings.contenders)
        elapsed = perf_counter() - started
        if settings.deadline is not None and elapsed > settings.deadline:
            reason = f"not begun: the deadline of {settings.deadline:.0f} s had passed"
            report.skipped.append(Skip("*", reason, draw.size, draw.dtype))
            print(f"{draw.size} {draw.dtype}: {reason}")
        else:
            _run_draw(report, draw, builders, settings)
        report.software = machine.describe_software()  # ours may have loaded just now
        if settings.output is not None:
            schema.write(report, settings.output)


def _builders(draw: Draw, names: Sequence[str]) -> dict[str, Builder]:
    """The contenders of these names for the draw's size; without names, all of them."""
    available = baselines.LAYERS if draw.size.steps > 1 else baselines.CELLS
    if unknown := sorted(set(names) - available.keys()):
        raise ValueError(f"no contender {unknown}; there are {sorted(available)}")
    return {name: build for name, build in available.items() if name in (names or available)}


def _run_draw(
    report: Report, draw: Draw, builders: Mapping[str, Builder], settings: Settings
) -> None:
    begun = perf_counter()
    if settings.is_random:
        set_tf32(allowed=draw.dtype == "tf32")
    _measure(report, draw, builders, settings)
    gc.collect()
    if settings.device == "cuda":
        torch.cuda.empty_cache()
    print(f"{draw.size} {draw.dtype}: {perf_counter() - begun:.1f} s", flush=True)
    if settings.is_random and settings.again:
        of_draw = [ratio for ratio in ratios(report) if (ratio.size, ratio.dtype) == draw]
        if any(ratio.value < SLOWER for ratio in of_draw):
            _repeat(report, draw, settings.again)


class Ready(NamedTuple):
    """A contender that passed the check before the timing."""

    cell: Cell
    inputs: Inputs
    error: float


def _measure(
    report: Report, draw: Draw, builders: Mapping[str, Builder], settings: Settings
) -> None:
    """Build and check every contender; measure those that pass, and check the timed ones again."""
    seed = settings.seed
    protocol = settings.protocol
    request = Request(draw.size, DTYPES[draw.dtype], settings.device, seed)
    checked = partial(check, input_gradients=protocol != "tutorial")
    if "torch._dynamo" in sys.modules:  # to import this module would take seconds
        torch._dynamo.reset()  # otherwise, a few sizes would reach torch's recompile limit
    # A long sequence is first checked on a few steps, where rounding errors are small and the
    # check is strictest. If the protocol times it, the whole sequence is checked afterwards.
    short = replace(draw.size, steps=min(draw.size.steps, SHORT))
    ready: dict[str, Ready] = {}
    runs: dict[str, Run] = {}
    for name, build in builders.items():
        with _reported(report, draw, name):
            cell = build(request)
            error = checked(cell, make_inputs(short, request.dtype, request.device, seed + 1))
            inputs = make_inputs(draw.size, request.dtype, request.device, seed + 2)
            if protocol in PROTOCOLS:
                runs[name] = PROTOCOLS[protocol](cell, inputs)
            ready[name] = Ready(cell, inputs, error)
    times = interleave(runs, settings.seconds, settings.rounds, seed) if runs else {}
    for name, (cell, inputs, error) in ready.items():
        with _reported(report, draw, name):
            if name in times:  # check again, on the inputs that were timed
                error = max(error, checked(cell, inputs))
                metrics = times[name]
            else:
                metrics = PROFILES[protocol](cell, request)
            _record(report, Subject(name, draw.size, draw.dtype), metrics, error)


@contextmanager
def _reported(report: Report, draw: Draw, contender: str) -> Iterator[None]:
    """Record a failure (out of memory, no compiler) as a skip; other contenders go on."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, WrongResult):
            reason = f"{WRONG}: {error}"
        elif isinstance(error, Unavailable):
            reason = str(error)
        else:
            reason = f"failed: {type(error).__name__}: {str(error)[:300]}"
        reason = " ".join(reason.split())
        report.skipped.append(Skip(contender, reason, draw.size, draw.dtype))
        print(f"  {contender} skipped: {reason}")


def _record(
    report: Report, subject: Subject, metrics: Mapping[str, Measured], error: float
) -> None:
    """Add the results of a contender, and the names of its kernels if the protocol counts them."""
    for metric, measured in metrics.items():
        report.results.append(schema.summarised(subject, metric, measured, error))
        if measured.names:
            counted = [f"{count} x {name}" for name, count in Counter(measured.names).items()]
            key = f"kernels {subject.contender} {metric} {subject.size} {subject.dtype}"
            report.settings[key] = "; ".join(counted)


def _repeat(report: Report, draw: Draw, again: int) -> None:
    """Measure a draw in fresh processes; for each pass, keep the median, of two the slower."""
    size = ",".join(map(str, astuple(draw.size)))
    command = [sys.executable, *shlex.split(report.command_line)[1:], "--again", "0"]
    repeats: list[Report] = []
    for _ in range(again):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "again.json"
            changes = ["--sizes", size, "--dtype", draw.dtype, "--json", str(path)]
            subprocess.run([*command, *changes], check=False, stdout=subprocess.DEVNULL)
            if path.exists():
                repeats.append(schema.read(path))
    for metric in PASSES:
        values = sorted(
            (ratio.value, number)
            for number, repeat in enumerate(repeats)
            for ratio in ratios(repeat)
            if ratio.metric == metric
        )
        if values:
            _, chosen = values[(len(values) - 1) // 2]
            kept = [r for r in report.results if (r.size, r.dtype, r.metric) != (*draw, metric)]
            report.results = kept + [r for r in repeats[chosen].results if r.metric == metric]


def _import_times() -> list[float]:
    """Milliseconds of `import torch`, and then of `import lltm_conda`, in a fresh process."""
    # LLTM_CONDA_LOAD=0 loads no binaries; PYTHONDONTWRITEBYTECODE triples torch's import
    # time.
    unset = ("LLTM_CONDA_LOAD", "PYTHONDONTWRITEBYTECODE")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tempfile.gettempdir(),
        env={name: value for name, value in os.environ.items() if name not in unset},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(
            f"a fresh process could not import torch and lltm_conda: {last}: "
            "python -m lltm_conda says what is missing"
        )
    return [float(seconds) * 1e3 for seconds in done.stdout.split()]


def run_import(settings: Settings) -> Report:
    """Measure in fresh processes what `import lltm_conda` adds to `import torch`."""
    report = new_report(settings)
    _import_times()  # warm-up: fills the page cache, writes byte code
    samples = [_import_times() for _ in range(settings.rounds)]
    parts = ("import torch", "added by lltm_conda")
    for name, values in zip(parts, zip(*samples, strict=True), strict=True):
        measured = Measured(unit="ms", rounds=[[value] for value in values], detail={})
        subject = Subject(contender=name, size=Size(1, 1, 1), dtype="-")
        report.results.append(schema.summarised(subject, "time", measured))
    if settings.output:
        schema.write(report, settings.output)
    return report
