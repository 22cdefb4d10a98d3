"""One run of a command that measures: build, check, measure, record, write."""

import datetime
import gc
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from . import baselines, machine, schema
from .check import WrongResult, check
from .contender import (
    DTYPES,
    OURS,
    REDUCE_OVERHEAD,
    Builder,
    Cell,
    Inputs,
    Request,
    Unavailable,
    make_inputs,
)
from .profiles import PROFILES
from .report import PASSES, SLOWER, ratios
from .schema import Report, Result, Size, Skip, summarise
from .sizes import Draw
from .timing import PROTOCOLS, Run, interleave

SHORT = 8
"""Steps of the sequence on which every layer is checked before it is timed."""
WRONG = "WRONG RESULT"
"""Begins the reason of a contender that failed the check; the command's exit status is then 1."""
PEERS = {"layer": "lstm", "step": "lstmcell"}
"""Beside ours in a run of `random`."""
TORCH = "import torch"
ADDED = "added by lltm_conda"
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


@dataclass
class Options:
    device: str = "cpu"
    dtypes: Sequence[str] = ("float32",)
    protocol: str = "tutorial"
    threads: int = 1
    seconds: float = 1.0
    rounds: int = 15
    seed: int = 0
    contenders: Sequence[str] = ()
    """Names to measure; empty means all."""
    deadline: float | None = None
    """Seconds after which no further size is begun."""
    json: Path | None = None
    log: Callable[[str], None] = field(default=print)


def new_report(command: str, command_line: str, options: Options) -> Report:
    """A report without results. The machine's load is read now, before anything has run."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"--device cuda needs a GPU and a CUDA build of torch; torch is {torch.__version__} "
            "and sees none: use --device cpu"
        )
    torch.set_num_threads(options.threads)
    return Report(
        command=command,
        command_line=command_line,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        device=options.device,
        protocol=options.protocol,
        threads=options.threads,
        machine=machine.describe_machine(options.device),
        software=machine.describe_software(),
        settings={
            "seconds": str(options.seconds),
            "rounds": str(options.rounds),
            "seed": str(options.seed),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "cuda_matmul_allow_tf32": str(torch.backends.cuda.matmul.allow_tf32),
            "cudnn_allow_tf32": str(torch.backends.cudnn.allow_tf32),
        },
    )


def run_sizes(
    report: Report,
    sizes: Iterable[Size],
    builders: Mapping[str, Builder],
    options: Options,
    started: float | None = None,
) -> None:
    """Measure every size and dtype. The file is written after each, so a kill loses one size.

    The deadline counts from `started`, by default from now.
    """
    started = perf_counter() if started is None else started
    if options.protocol == "kernels" and options.device != "cuda":
        raise ValueError("--protocol kernels counts GPU kernels: use --device cuda")
    if unknown := sorted(set(options.contenders) - set(builders)):
        raise ValueError(f"no contender {unknown}; there are {sorted(builders)}")
    wanted = options.contenders or tuple(builders)
    builders = {name: build for name, build in builders.items() if name in wanted}
    for size in sizes:
        for dtype in options.dtypes:
            begun = perf_counter()
            if options.deadline is not None and begun - started > options.deadline:
                reason = f"not begun: the deadline of {options.deadline:.0f} s had passed"
                report.skipped.append(Skip("*", reason, size, dtype))
                options.log(f"{size} {dtype}: {reason}")
            else:
                _measure(report, size, dtype, builders, options)
                gc.collect()
                if options.device == "cuda":
                    torch.cuda.empty_cache()
                options.log(f"{size} {dtype}: {perf_counter() - begun:.1f} s")
            report.software = machine.describe_software()  # ours may have loaded just now
            if options.json is not None:
                schema.write(report, options.json)


def _measure(
    report: Report, size: Size, dtype: str, builders: Mapping[str, Builder], options: Options
) -> None:
    """Build and check every contender, measure those that are right, and check them again."""
    protocol, seed = options.protocol, options.seed
    request = Request(size, DTYPES[dtype], options.device, seed)

    @contextmanager
    def reported(name: str) -> Iterator[None]:
        """A contender that fails (out of memory, no compiler) does not stop the others."""
        try:
            yield
        except RuntimeError as error:
            failed = f"failed: {type(error).__name__}: {str(error)[:300]}"
            known = {WrongResult: f"{WRONG}: {error}", Unavailable: str(error)}
            reason = " ".join(known.get(type(error), failed).split())
            report.skipped.append(Skip(name, reason, size, dtype))
            options.log(f"  {name} skipped: {reason}")

    def checked(cell: Cell, inputs: Inputs) -> float:
        return check(cell, inputs, input_gradients=protocol != "tutorial")

    if "torch._dynamo" in sys.modules:  # the import alone takes seconds
        torch._dynamo.reset()  # a few sizes would reach torch's recompile limit
    # For a long sequence, the first check takes only a short one, in which rounding errors are
    # small and the check is strictest. The whole sequence is checked after the timing.
    short = replace(size, steps=min(size.steps, SHORT))
    ready: dict[str, tuple[Cell, Inputs, float]] = {}
    runs: dict[str, Run] = {}
    for name, build in builders.items():
        with reported(name):
            if name == REDUCE_OVERHEAD and protocol not in PROTOCOLS:
                raise Unavailable("its CUDA graphs overwrite the outputs that backward needs")
            cell = build(request)
            error = checked(cell, make_inputs(short, request.dtype, request.device, seed + 1))
            inputs = make_inputs(size, request.dtype, request.device, seed + 2)
            if protocol in PROTOCOLS:
                runs[name] = PROTOCOLS[protocol](cell, inputs)
            ready[name] = cell, inputs, error
    times = interleave(runs, options.seconds, options.rounds, seed) if runs else {}
    for name, (cell, inputs, error) in ready.items():
        with reported(name):
            if name in times:  # check again, on the inputs that were timed
                error = max(error, checked(cell, inputs))
                found = times[name]
            else:
                found = PROFILES[protocol](cell, request)
            for metric, one in found.items():
                fields = {"contender": name, "metric": metric, "size": size, "dtype": dtype}
                fields |= {"unit": one.unit, "error": error, "detail": one.detail}
                fields["rounds"] = [round(median(samples), 4) for samples in one.rounds]
                summary = summarise([sample for samples in one.rounds for sample in samples])
                report.results.append(Result(**fields, **summary))
                if one.names:
                    counted = [f"{n} x {kernel}" for kernel, n in Counter(one.names).items()]
                    key = f"kernels {name} {metric} {size} {dtype}"
                    report.settings[key] = "; ".join(counted)


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


def run_draws(found: Report, what: str, draws: list[Draw], again: int, options: Options) -> None:
    """Measure ours beside torch's; what is slower is measured `again` times."""
    every = baselines.LAYERS if what == "layer" else baselines.CELLS
    names = options.contenders or (PEERS[what], OURS)
    started = perf_counter()
    for one in draws:
        with tf32(one.dtype == "tf32"):
            chosen = replace(options, dtypes=(one.dtype,), contenders=names)
            run_sizes(found, [one.size], every, chosen, started)
        values = (r.value for r in ratios(found) if (r.size, r.dtype) == one)
        if again and min(values, default=1.0) < SLOWER:
            _repeat(found, one, again, options)


def _repeat(found: Report, one: Draw, again: int, options: Options) -> None:
    """Replace the results of this draw, for each pass, by the median of fresh processes."""
    text = ",".join(map(str, astuple(one.size)[: 4 if one.size.steps > 1 else 3]))
    words = [sys.executable, *shlex.split(found.command_line)[1:], "--again", "0", "--only", text]
    runs = []
    for _ in range(again):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "again.json"
            command = [*words, one.dtype, "--json", str(path)]
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
            runs += [schema.read(path)] if path.exists() else []
    every = [(r, n) for n, run in enumerate(runs) for r in ratios(run)]
    for metric in PASSES:
        values = sorted((r.value, n) for r, n in every if r.metric == metric)
        if values:
            middle = runs[values[len(values) // 2][1]]
            others = [r for r in found.results if (r.size, r.dtype, r.metric) != (*one, metric)]
            found.results = others + [r for r in middle.results if r.metric == metric]
    if options.json is not None:
        schema.write(found, options.json)


def _import() -> list[float]:
    # The first variable leaves nothing to measure; the second triples the time of `import torch`.
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


def run_import(line: str, rounds: int) -> Report:
    """What `import lltm_conda` adds to `import torch`, in fresh processes."""
    report = new_report("import", line, Options(protocol="fresh process", rounds=rounds))
    _import()  # warm-up: files in the page cache, byte code written
    samples = [_import() for _ in range(rounds)]
    for name, values in zip((TORCH, ADDED), zip(*samples, strict=True), strict=True):
        fields = {"size": Size(1, 1, 1), "dtype": "-", "contender": name, "metric": "time"}
        fields |= {"unit": "ms", "rounds": list(values), **summarise(values)}
        report.results.append(Result(**fields))
    return report
