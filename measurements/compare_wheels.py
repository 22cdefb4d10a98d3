"""Measures two builds of lltm in turn on one GPU: what does the new one lose?

    python -m measurements.compare_wheels --old DIR --new DIR --only-changed-plans --json FILE

DIR is a folder with an installed lltm (`pip install --no-deps --target DIR WHEEL`). Each build runs
in a process of its own, and so does torch's own module beside each. In every round all four run
once, in random order, by a protocol of the benchmarks: between two CUDA events (`split`), or by the
host's clock, as the tutorial does (`tutorial`). Sizes are drawn as `python -m benchmarks random`
draws them, or named by `--sizes`.

Where the host decides, a process can be slow or quick from its start to its end. With `--pairs N`,
N pairs of processes measure everything, one after the other; a row has the medians. `kept` is the
old time over the new; in `kept_beside_torch` each is first divided by torch's time in the same
process, so that a slow process does not count against its build.

With `--only-changed-plans`, only sizes that the two builds run by different families of kernels are
measured, and of these only the passes whose family differs. A draw falls if torch's time over ours
is at least 0.97 by the old build and less by the new one; it is then measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import gc
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import torch

from benchmarks import baselines, machine, session, sizes
from benchmarks.check import check
from benchmarks.compare import OURS, SLOWER
from benchmarks.contender import DTYPES, Builder, Calls, Request, make_inputs
from benchmarks.schema import Size, paired_ratio
from benchmarks.timing import both_passes, calibrate, stopwatch, tutorial
from measurements import storage

if TYPE_CHECKING:
    from benchmarks.timing import Run, Samples

Pass = Literal["forward", "backward"]
PASSES: tuple[Pass, ...] = ("forward", "backward")
Protocol = Literal["split", "tutorial"]
PROTOCOLS = {"split": both_passes, "tutorial": tutorial}
"""`split` without its calls under no_grad, which no comparison shows."""
Build = Literal["old", "new"]
MOST_LOOKED_AT = 100_000
"""The most draws among which `--only-changed-plans` looks for changed plans."""


class Draw(NamedTuple):
    """One problem: a step or a layer, and a dtype of `benchmarks.contender.DTYPES`."""

    size: Size
    dtype: str


@dataclass(frozen=True)
class Manner:
    """How each draw is measured."""

    protocol: Protocol
    checked: bool  #: whether our results are first compared with float64
    seconds: float  #: for which each contender runs, in all rounds together
    rounds: int


# --- The plans of a build, read from the table of its CUDA kernels ---


class StepSizes(ctypes.Structure):
    """`lltm_step_sizes` of csrc/kernels/lltm_kernels.h, like the structures below."""

    _fields_ = (
        ("batch_size", ctypes.c_int64),
        ("input_size", ctypes.c_int64),
        ("state_size", ctypes.c_int64),
        ("weight_stride", ctypes.c_int64),
        ("allow_tf32", ctypes.c_int32),
    )


class StepPlan(ctypes.Structure):
    _fields_ = (
        ("family", ctypes.c_int32),
        ("workspace_bytes", ctypes.c_int64),
        ("makes_gates", ctypes.c_int32),
        ("split_k", ctypes.c_int32),
        ("calls_product", ctypes.c_int32),
        ("allow_tf32", ctypes.c_int32),
    )


class Execution(ctypes.Structure):
    _fields_ = (
        ("device_index", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
        ("parallel_for", ctypes.c_void_p),
        ("blas_handle", ctypes.c_void_p),
    )


class KernelTable(ctypes.Structure):
    _fields_ = (
        ("abi", ctypes.c_uint32),
        ("byte_size", ctypes.c_uint32),
        ("device", ctypes.c_char_p),
        ("before_step_plan", ctypes.c_void_p * 7),
        ("step_plan", ctypes.c_void_p),
    )


STEP_PLAN = ctypes.CFUNCTYPE(
    ctypes.c_char_p,
    *(ctypes.c_int, ctypes.c_int, ctypes.c_int32),
    *(ctypes.POINTER(kind) for kind in (StepSizes, Execution, StepPlan)),
)
DTYPE_CODES = {torch.float16: 5, torch.float32: 6, torch.bfloat16: 15}
NEEDS_ALL = 31
# Kept alive as long as the process: kernels call it.
BLAS_HANDLE = ctypes.CFUNCTYPE(ctypes.c_void_p)(torch.cuda.current_blas_handle)


def plan_step(draw: Draw) -> dict[Pass, int]:
    """The families, as numbers, by which the loaded build runs a step."""
    from lltm_conda import loader

    loaded = loader.loaded()
    if loaded is None:
        raise RuntimeError("lltm has loaded no binaries; python -m lltm_conda says why")
    path = next(path for path in loaded.paths if path and path.name.startswith("kernels-cuda"))
    library = ctypes.CDLL(str(path))
    library.lltm_kernel_table.restype = ctypes.POINTER(KernelTable)
    step_plan = STEP_PLAN(library.lltm_kernel_table().contents.step_plan)
    session.set_tf32(allowed=draw.dtype == "tf32")
    size = draw.size
    step = StepSizes(
        batch_size=size.batch,
        input_size=size.inputs,
        state_size=size.state,
        weight_stride=size.inputs + size.state,
    )
    execution = Execution(blas_handle=ctypes.cast(BLAS_HANDLE, ctypes.c_void_p).value)
    families: dict[Pass, int] = {}
    for number, name in enumerate(PASSES):
        plan = StepPlan()
        code = DTYPE_CODES[DTYPES[draw.dtype]]
        needs = NEEDS_ALL if name == "backward" else 0
        error = step_plan(code, number, needs, step, execution, plan)
        if error is not None:
            raise RuntimeError(error.decode())
        families[name] = plan.family
    return families


# --- A process that holds one build ---


class Worker:
    """Answers one request a line, as JSON: in this process only one build is loaded."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._counts: dict[str, int] = {}

    def plan(self, draw: Draw) -> dict[Pass, int]:
        return plan_step(draw)

    def describe(self) -> dict[str, object]:
        """The machine and the software, once the build is loaded."""
        software = machine.describe_software()
        return {
            "gpu": torch.cuda.get_device_name(),
            "machine": asdict(machine.describe_machine("cuda")),
            "software": asdict(software),
        }

    def prepare(
        self,
        draw: Draw,
        contenders: Sequence[str],
        passes: Sequence[Pass],
        manner: Manner,
    ) -> None:
        """Builds the contenders of a draw and warms them up."""
        self.forget()
        session.set_tf32(allowed=draw.dtype == "tf32")
        is_layer = draw.size.steps > 1
        contenders_of = baselines.LAYERS if is_layer else baselines.CELLS
        builders = cast("Mapping[str, Builder]", contenders_of)
        request = Request(draw.size, DTYPES[draw.dtype], "cuda", seed=0)
        inputs = make_inputs(draw.size, request.dtype, "cuda", seed=2)
        for name in contenders:
            cell = builders[name](request)
            if manner.checked and name == OURS:
                check(cell, inputs)
            if "backward" in passes:
                run = PROTOCOLS[manner.protocol](cell, inputs)
            else:
                run = partial(_run_forward, Calls(cell, inputs))
            self._runs[name] = run
            self._counts[name] = calibrate(run, seconds=manner.seconds, rounds=manner.rounds)

    def run_round(self, contender: str) -> dict[str, float]:
        """The median microseconds of each pass in one round."""
        samples = self._runs[contender](1 + self._counts[contender])
        return {name: statistics.median(times[1:]) for name, times in samples.items()}

    def forget(self) -> None:
        self._runs.clear()
        self._counts.clear()
        gc.collect()
        torch.cuda.empty_cache()


def _run_forward(calls: Calls, n: int) -> Samples:
    timed = stopwatch(cuda=True, steps=calls.steps)
    return {"forward": [timed(calls.forward)[0] for _ in range(n)]}


def serve() -> None:
    """Runs a worker on standard input and output until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    worker = Worker()
    torch.cuda.init()
    for line in sys.stdin:
        request = json.loads(line)
        arguments = request["arguments"]
        if "draw" in arguments:
            size, dtype = arguments["draw"]
            arguments["draw"] = Draw(Size(*size), dtype)
        if "manner" in arguments:
            arguments["manner"] = Manner(**arguments["manner"])
        try:
            answer = {"value": getattr(worker, request["method"])(**arguments)}
        except RuntimeError as error:
            worker.forget()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


class WorkerError(RuntimeError):
    """A build could not run a draw; the message says why."""


class WorkerProcess:
    """A worker for the build that is installed in `site`."""

    def __init__(self, site: Path) -> None:
        command = [sys.executable, "-m", "measurements.compare_wheels", "--worker"]
        # The build comes before the checkout, whose sources have no binaries.
        path = os.pathsep.join((str(site.resolve()), str(machine.ROOT)))
        env = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, text=True)

    def ask(self, method: str, **arguments: object) -> object:
        """The value of a method of `Worker`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"method": method, "arguments": arguments}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"the process ended with {self._process.wait()}; its text is above")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# --- The comparison ---


@dataclass(frozen=True)
class Comparison:
    """One pass of one draw. Ratios are those of times, so more is quicker."""

    draw: Draw
    metric: Pass
    old_us: float
    new_us: float
    peer_us: float
    old_ratio: float  #: torch's time over the old build's
    new_ratio: float  #: torch's time over the new build's
    kept: float  #: the old build's time over the new one's; less than 1 is a loss
    kept_beside_torch: float  #: `new_ratio` over `old_ratio`; less than 1 is a loss
    families: tuple[int, int] | None = None  #: of the old and of the new plan, for steps

    @property
    def falls(self) -> bool:
        return self.old_ratio >= SLOWER > self.new_ratio

    def row(self) -> list[object]:
        """One line of the result file; `COLUMNS` names its values."""
        size = self.draw.size
        sizes_of = [size.batch, size.inputs, size.state, size.steps]
        numbers = (self.old_us, self.new_us, self.peer_us)
        ratios = (self.old_ratio, self.new_ratio, self.kept, self.kept_beside_torch)
        rounded = [float(f"{number:.4g}") for number in (*numbers, *ratios)]
        return [*sizes_of, self.draw.dtype, self.metric, *rounded, *(self.families or (None, None))]


def median_of(some: Sequence[Comparison]) -> Comparison:
    """The medians of comparisons of one pass."""
    return replace(
        some[0],
        old_us=statistics.median(one.old_us for one in some),
        new_us=statistics.median(one.new_us for one in some),
        peer_us=statistics.median(one.peer_us for one in some),
        old_ratio=statistics.median(one.old_ratio for one in some),
        new_ratio=statistics.median(one.new_ratio for one in some),
        kept=statistics.median(one.kept for one in some),
        kept_beside_torch=statistics.median(one.kept_beside_torch for one in some),
    )


COLUMNS = (
    *("batch", "inputs", "state", "steps", "dtype", "metric"),
    *("old_us", "new_us", "peer_us", "old_ratio", "new_ratio", "kept", "kept_beside_torch"),
    *("old_family", "new_family"),
)


@dataclass
class Comparisons:
    """All passes that were measured, and what was drawn for them."""

    looked_at: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    passes: list[Comparison] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def combine_pairs(self) -> None:
        """Makes one comparison, of medians, of those of one pass by several pairs of processes."""
        by_pass: dict[tuple[Draw, Pass], list[Comparison]] = {}
        for one in self.passes:
            by_pass.setdefault((one.draw, one.metric), []).append(one)
        self.passes = [median_of(some) for some in by_pass.values()]

    def summarise(self, metric: Pass) -> dict[str, object]:
        """The median and the worst of a pass, and how many draws fall."""
        some = [one for one in self.passes if one.metric == metric]
        if not some:
            return {"draws": 0}
        return {
            "draws": len(some),
            "median_kept": round(statistics.median(one.kept for one in some), 4),
            "worst_kept": round(min(one.kept for one in some), 4),
            "median_kept_beside_torch": round(
                statistics.median(one.kept_beside_torch for one in some), 4
            ),
            "worst_kept_beside_torch": round(min(one.kept_beside_torch for one in some), 4),
            "falls": sum(one.falls for one in some),
            "slower_by_old": sum(one.old_ratio < SLOWER for one in some),
            "slower_by_new": sum(one.new_ratio < SLOWER for one in some),
        }


class Pair:
    """The processes of the two builds."""

    def __init__(self, old: Path, new: Path, manner: Manner) -> None:
        self._workers: dict[Build, WorkerProcess] = {
            "old": WorkerProcess(old),
            "new": WorkerProcess(new),
        }
        self._manner = manner
        self._random = random.Random(0)

    def describe(self) -> dict[str, object]:
        return {name: worker.ask("describe") for name, worker in self._workers.items()}

    def changed_passes(self, draw: Draw) -> dict[Pass, tuple[int, int]]:
        """The passes that the builds run by different families, with the families' numbers."""
        plans = {
            name: worker.ask("plan", draw=draw_as_json(draw))
            for name, worker in self._workers.items()
        }
        pairs = {name: (plans["old"][name], plans["new"][name]) for name in PASSES}  # type: ignore[index]
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def measure(
        self, draw: Draw, families: dict[Pass, tuple[int, int]] | None, *, again: int
    ) -> list[Comparison]:
        """Compares the passes in `families`, or all of them if it is None."""
        passes = list(families or PASSES)
        found = self._measure_once(draw, passes, families)
        if not any(one.falls for one in found):
            return found
        repeats = [found, *(self._measure_once(draw, passes, families) for _ in range(again))]
        return [
            sorted((run[index] for run in repeats), key=lambda one: one.new_ratio)[again // 2]
            for index in range(len(found))
        ]

    def _measure_once(
        self,
        draw: Draw,
        passes: Sequence[Pass],
        families: dict[Pass, tuple[int, int]] | None,
    ) -> list[Comparison]:
        peer = session.PEERS["layer" if draw.size.steps > 1 else "step"]
        contenders: list[tuple[Build, str]] = [
            ("old", OURS),
            ("new", OURS),
            ("old", peer),
            ("new", peer),
        ]
        rounds: dict[tuple[Build, str], list[dict[str, float]]] = {one: [] for one in contenders}
        prepare = {
            "draw": draw_as_json(draw),
            "passes": passes,
            "manner": asdict(self._manner),
        }
        try:
            for worker in self._workers.values():
                worker.ask("prepare", contenders=[OURS, peer], **prepare)
            for _ in range(self._manner.rounds):
                for one in self._random.sample(contenders, len(contenders)):
                    build, name = one
                    times = self._workers[build].ask("run_round", contender=name)
                    rounds[one].append(times)  # type: ignore[arg-type]
        finally:
            for worker in self._workers.values():
                worker.ask("forget")
        comparisons = []
        for metric in passes:
            old, new, peer_of_old, peer_of_new = (
                [times[metric] for times in rounds[one]] for one in contenders
            )
            comparisons.append(
                Comparison(
                    draw=draw,
                    metric=metric,
                    old_us=statistics.median(old),
                    new_us=statistics.median(new),
                    peer_us=statistics.median(peer_of_new),
                    old_ratio=paired_ratio(peer_of_old, old),
                    new_ratio=paired_ratio(peer_of_new, new),
                    kept=paired_ratio(old, new),
                    kept_beside_torch=paired_ratio(peer_of_new, new)
                    / paired_ratio(peer_of_old, old),
                    families=families[metric] if families else None,
                )
            )
        return comparisons

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()


def draw_as_json(draw: Draw) -> list[object]:
    size = draw.size
    return [[size.batch, size.inputs, size.state, size.steps], draw.dtype]


@contextlib.contextmanager
def opened_pair(old: Path, new: Path, manner: Manner) -> Iterator[Pair]:
    pair = Pair(old, new, manner)
    try:
        yield pair
    finally:
        pair.close()


def list_draws(arguments: argparse.Namespace) -> list[Draw]:
    """The draws to measure, or those to look at for changed plans."""
    if arguments.sizes:
        named = [Size.parse(text) for text in arguments.sizes]
        return [Draw(size, dtype) for size in named for dtype in arguments.dtypes]
    count = MOST_LOOKED_AT if arguments.only_changed_plans else arguments.count
    drawn = sizes.draw(arguments.what, arguments.seed, count, "cuda")
    return [Draw(one.size, one.dtype) for one in drawn if one.dtype in arguments.dtypes]


def compare(arguments: argparse.Namespace, pair: Pair, found: Comparisons) -> None:
    """Measures draws until there are enough, or until the deadline."""
    started = perf_counter()
    measured = 0
    for draw in list_draws(arguments):
        if measured >= arguments.count or perf_counter() - started > arguments.deadline:
            return
        found.looked_at += 1
        families = None
        if arguments.only_changed_plans:
            families = pair.changed_passes(draw)
            if not families:
                continue
            for name in families:
                found.changed[name] = found.changed.get(name, 0) + 1
        try:
            found.passes += pair.measure(draw, families, again=arguments.again)
            measured += 1
        except WorkerError as error:
            reason = " ".join(str(error).split())[:200]
            found.skipped.append(f"{draw.size} {draw.dtype}: {reason}")


def write(path: Path, arguments: argparse.Namespace, facts: object, found: Comparisons) -> None:
    """Writes the results, one line a pass."""
    document = {
        "command": "python -m measurements.compare_wheels " + arguments.shown,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "builds": facts,
        "seconds": arguments.seconds,
        "rounds": arguments.rounds,
        "looked_at": found.looked_at,
        "changed": found.changed,
        "summary": {name: found.summarise(name) for name in PASSES},
        "skipped": found.skipped,
        "columns": COLUMNS,
        "rows": [comparison.row() for comparison in found.passes],
    }
    storage.save(document, path)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    add("--old", type=Path, metavar="DIR", help="the old build")
    add("--new", type=Path, metavar="DIR", help="the new build")
    add("--what", choices=("step", "layer"), default="step")
    add("--only-changed-plans", action="store_true", help="only steps whose family differs")
    add("--sizes", nargs="+", metavar="B,I,S[,T]", help="these sizes instead of random draws")
    add("--dtypes", nargs="+", choices=tuple(DTYPES), default=sizes.KINDS["cuda"])
    add("--protocol", choices=tuple(PROTOCOLS), default="split", help="default: split")
    add("--count", type=int, default=100, help="draws to measure (default 100)")
    add("--seed", type=int, default=0)
    add("--seconds", type=float, default=0.25, help="per contender and draw (default 0.25)")
    add("--rounds", type=int, default=9, help="interleaved rounds (default 9)")
    add("--pairs", type=int, default=1, metavar="N", help="pairs of processes (default 1)")
    add("--again", type=int, default=3, help="repeats of a draw that falls (default 3)")
    add("--deadline", type=float, default=1e9, metavar="S", help="begin no draw after S seconds")
    add("--check", action="store_true", help="compare each draw's results with float64 first")
    add("--json", type=Path, metavar="FILE", help="store the results")
    arguments = parser.parse_args(argv)
    if arguments.worker:
        return arguments
    if arguments.old is None or arguments.new is None:
        parser.error("--old and --new are missing: name a folder with an installed lltm for each")
    if arguments.only_changed_plans and arguments.what == "layer":
        parser.error("--only-changed-plans knows plans of steps alone; use --what step")
    hidden = {"--old", "--new", "--json"}
    words = list(argv if argv is not None else sys.argv[1:])
    shown = [
        Path(w).name if before in hidden else w
        for before, w in zip(["", *words], words, strict=False)
    ]
    arguments.shown = " ".join(shown)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    if arguments.worker:
        serve()
        return 0
    found = Comparisons()
    manner = Manner(arguments.protocol, arguments.check, arguments.seconds, arguments.rounds)
    builds: dict[str, object] = {}
    try:
        for _ in range(arguments.pairs):
            with opened_pair(arguments.old, arguments.new, manner) as pair:
                try:
                    compare(arguments, pair, found)
                finally:
                    builds = pair.describe()
    finally:
        found.combine_pairs()
        if arguments.json is not None:
            write(arguments.json, arguments, builds, found)
    print(f"looked at {found.looked_at} draws, skipped {found.skipped}")
    for name in PASSES:
        print(f"{name}: {found.summarise(name)}")
    for one in sorted(found.passes, key=lambda one: one.kept)[:5]:
        print("  the worst:", *one.row())
    for one in found.passes:
        if one.falls:
            print("  falls:", *one.row())
    return 0


if __name__ == "__main__":
    sys.exit(main())
