"""One run of a command that measures: build, check, measure, record, write.

`arguments` is what `python -m benchmarks` has parsed; `parser` in `__main__.py` describes it.
"""

import datetime
import gc
import os
import shlex
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from time import perf_counter

import torch

from . import baselines, machine, schema
from .check import WrongResult, check
from .contender import DTYPES, Builder, Cell, Inputs, Request, Unavailable, make_inputs
from .profiles import PROFILES
from .report import PASSES, SLOWER, ratios
from .schema import Measured, Report, Size, Skip
from .sizes import Draw
from .timing import PROTOCOLS, Run, interleave

SHORT = 8
"""The most steps of the sequence on which a layer is checked before the timing."""
WRONG = "WRONG RESULT"
"""How a skip's reason begins if the contender failed the check; the exit status is then 1."""
PEERS = {"layer": "lstm", "step": "lstmcell"}
"""The contender that `random` measures beside ours by default."""
PROGRAM = f"""\
import sys
from time import perf_counter
sys.path.append({str(machine.ROOT)!r})
start = perf_counter()
import torch
middle = perf_counter()
import lltm_conda
print(middle - start, perf_counter() - middle)
"""


def new_report(arguments: Namespace) -> Report:
    """Set torch's threads; return a report without results, with the machine's present load."""
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"--device cuda needs a GPU and a CUDA build of torch; torch is {torch.__version__} "
            "and sees no GPU: use --device cpu"
        )
    if min(arguments.rounds, arguments.threads) < 1:
        raise ValueError("--rounds and --threads need a number of at least 1")
    torch.set_num_threads(arguments.threads)
    return Report(
        command=arguments.command,
        command_line=arguments.command_line,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        device=arguments.device,
        protocol=arguments.protocol,
        threads=arguments.threads,
        machine=machine.describe_machine(arguments.device),
        software=machine.describe_software(),
        settings={
            "seconds": str(arguments.seconds),
            "rounds": str(arguments.rounds),
            "seed": str(arguments.seed),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "cuda_matmul_allow_tf32": str(torch.backends.cuda.matmul.allow_tf32),
            "cudnn_allow_tf32": str(torch.backends.cudnn.allow_tf32),
        },
    )


def set_tf32(allowed: bool) -> None:
    """Set torch's tf32 flags of GEMMs and of cuDNN."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def run(report: Report, draws: Iterable[Draw], arguments: Namespace) -> None:
    """Measure draws until the deadline; write the file after each, so a killed run loses only one.

    `random` sets the flags for tf32 by the dtype, and measures a draw again if ours is slower.
    """
    if arguments.protocol == "kernels" and arguments.device != "cuda":
        raise ValueError("--protocol kernels counts GPU kernels: use --device cuda")
    is_random = arguments.command == "random"
    started = perf_counter()
    for draw in draws:
        every = baselines.LAYERS if draw.size.steps > 1 else baselines.CELLS
        names = arguments.contenders or every
        if unknown := sorted(set(names) - every.keys()):
            raise ValueError(f"no contender {unknown}; there are {sorted(every)}")
        begun = perf_counter()
        if arguments.deadline is not None and begun - started > arguments.deadline:
            reason = f"not begun: the deadline of {arguments.deadline:.0f} s had passed"
            report.skipped.append(Skip("*", reason, *draw))
            print(f"{draw.size} {draw.dtype}: {reason}")
        else:
            if is_random:
                set_tf32(draw.dtype == "tf32")
            builders = {name: build for name, build in every.items() if name in names}
            _measure(report, draw, builders, arguments)
            gc.collect()
            if arguments.device == "cuda":
                torch.cuda.empty_cache()
            print(f"{draw.size} {draw.dtype}: {perf_counter() - begun:.1f} s", flush=True)
            values = (r.value for r in ratios(report) if (r.size, r.dtype) == draw)
            if is_random and arguments.again and min(values, default=1.0) < SLOWER:
                _repeat(report, draw, arguments.again)
        report.software = machine.describe_software()  # ours may have loaded just now
        if arguments.json is not None:
            schema.write(report, arguments.json)


def _measure(
    report: Report, draw: Draw, builders: Mapping[str, Builder], arguments: Namespace
) -> None:
    """Build and check every contender; measure those that pass, and check the timed ones again."""
    (size, dtype), protocol, seed = draw, arguments.protocol, arguments.seed
    request = Request(size, DTYPES[dtype], arguments.device, seed)

    @contextmanager
    def reported(name: str) -> Iterator[None]:
        """Record a failure (out of memory, no compiler) as a skip; other contenders go on."""
        try:
            yield
        except RuntimeError as error:
            failed = f"failed: {type(error).__name__}: {str(error)[:300]}"
            known = {WrongResult: f"{WRONG}: {error}", Unavailable: str(error)}
            reason = " ".join(known.get(type(error), failed).split())
            report.skipped.append(Skip(name, reason, size, dtype))
            print(f"  {name} skipped: {reason}")

    checked = partial(check, input_gradients=protocol != "tutorial")
    if "torch._dynamo" in sys.modules:  # to import this module would take seconds
        torch._dynamo.reset()  # otherwise, a few sizes would reach torch's recompile limit
    # A long sequence is first checked on a few steps, where rounding errors are small and the check
    # is strictest. If the protocol times it, the whole sequence is checked afterwards.
    short = replace(size, steps=min(size.steps, SHORT))
    ready: dict[str, tuple[Cell, Inputs, float]] = {}
    runs: dict[str, Run] = {}
    for name, build in builders.items():
        with reported(name):
            cell = build(request)
            error = checked(cell, make_inputs(short, request.dtype, request.device, seed + 1))
            inputs = make_inputs(size, request.dtype, request.device, seed + 2)
            if protocol in PROTOCOLS:
                runs[name] = PROTOCOLS[protocol](cell, inputs)
            ready[name] = cell, inputs, error
    times = interleave(runs, arguments.seconds, arguments.rounds, seed) if runs else {}
    for name, (cell, inputs, error) in ready.items():
        with reported(name):
            if name in times:  # check again, on the inputs that were timed
                error = max(error, checked(cell, inputs))
                found = times[name]
            else:
                found = PROFILES[protocol](cell, request)
            for metric, one in found.items():
                fields = {"size": size, "dtype": dtype, "contender": name, "metric": metric}
                report.results.append(schema.summarised(one, **fields, error=error))
                if one.names:
                    counted = [f"{n} x {kernel}" for kernel, n in Counter(one.names).items()]
                    key = f"kernels {name} {metric} {size} {dtype}"
                    report.settings[key] = "; ".join(counted)


def _repeat(report: Report, draw: Draw, again: int) -> None:
    """Measure a draw in fresh processes; for each pass, keep the median, of two the slower."""
    text = ",".join(map(str, astuple(draw.size)))
    command = [sys.executable, *shlex.split(report.command_line)[1:], "--again", "0"]
    runs = []
    for _ in range(again):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "again.json"
            words = ["--sizes", text, "--dtype", draw.dtype, "--json", str(path)]
            subprocess.run([*command, *words], check=False, stdout=subprocess.DEVNULL)
            runs += [schema.read(path)] if path.exists() else []
    every = [(r, n) for n, run in enumerate(runs) for r in ratios(run)]
    for metric in PASSES:
        values = sorted((r.value, n) for r, n in every if r.metric == metric)
        if values:
            middle = runs[values[(len(values) - 1) // 2][1]]
            others = [r for r in report.results if (r.size, r.dtype, r.metric) != (*draw, metric)]
            report.results = others + [r for r in middle.results if r.metric == metric]


def _import() -> list[float]:
    """Milliseconds of `import torch`, and then of `import lltm_conda`, in a fresh process."""
    # LLTM_CONDA_LOAD=0 loads no binaries; PYTHONDONTWRITEBYTECODE triples torch's import time.
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


def run_import(arguments: Namespace) -> Report:
    """Measure in fresh processes what `import lltm_conda` adds to `import torch`."""
    report = new_report(arguments)
    _import()  # warm-up: fills the page cache, writes byte code
    samples = [_import() for _ in range(arguments.rounds)]
    parts = ("import torch", "added by lltm_conda")
    for name, values in zip(parts, zip(*samples, strict=True), strict=True):
        measured = Measured("ms", [[value] for value in values], {})
        fields = {"size": Size(1, 1, 1), "dtype": "-", "contender": name, "metric": "time"}
        report.results.append(schema.summarised(measured, **fields))
    if arguments.json:
        schema.write(report, arguments.json)
    return report
