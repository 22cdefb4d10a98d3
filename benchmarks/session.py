"""One run of `cell`, `layer` or `grid`: build, check, measure interleaved, record, write."""

from __future__ import annotations

import datetime
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

import torch

from . import baselines, floor, kernels, machine, memory, schema
from .baselines import Builder, Request, Unavailable, compiled
from .problem import DTYPES, STATES, Cell, Inputs, WrongResult, check, make_inputs
from .schema import Ceilings, Floor, Report, Result, Size, Skip
from .stats import summarise
from .timing import PROTOCOLS, NotMeasurable, Rounds, Run, interleave, round_medians

SHORT = 8
"""Steps of the sequence that every layer is checked on before it is timed."""
Log = Callable[[str], None]
Skipper = Callable[[str, str], None]
"""Records the name of a contender and why it was not measured."""
WRONG = "WRONG RESULT"
"""Begins the reason of a contender that failed the check; the command's exit status is then 1."""


@dataclass
class Options:
    """What the command line chose."""

    device: str = "cpu"
    dtypes: tuple[str, ...] = ("float32",)
    protocol: str = "tutorial"
    threads: int = 1
    seconds: float = 1.0
    rounds: int = 15
    seed: int = 0
    contenders: tuple[str, ...] = ()
    """Names to measure; empty means all."""
    deadline: float | None = None
    """Seconds after which no further size is begun."""
    json: Path | None = None
    log: Log = field(default=print)


def new_report(command: str, command_line: str, options: Options) -> Report:
    """A report without results. Machine load is read now, before anything has run.

    Raises:
        ValueError: CUDA is asked for and not there.
    """
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


def allow_tf32(allowed: bool) -> None:
    """Sets both of torch's flags, so that all contenders may round products of float32 or none."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def run_sizes(
    report: Report,
    sizes: Iterable[Size],
    builders: Mapping[str, Builder],
    options: Options,
) -> Report:
    """Measure every size and dtype, writing the file after each so that a kill loses one size."""
    started = perf_counter()
    if options.contenders:
        unknown = sorted(set(options.contenders) - set(builders))
        if unknown:
            raise ValueError(f"no contender {unknown}; there are {sorted(builders)}")
        builders = {name: builders[name] for name in builders if name in options.contenders}
    for size in sizes:
        for dtype in options.dtypes:
            late = options.deadline is not None and perf_counter() - started > options.deadline
            if late:
                reason = f"not begun: the deadline of {options.deadline:.0f} s had passed"
                report.skipped.append(Skip("*", reason, size, dtype))
                options.log(f"{size} {dtype}: {reason}")
            else:
                begun = perf_counter()
                _one_size(report, size, dtype, builders, options)
                options.log(f"{size} {dtype}: {perf_counter() - begun:.1f} s")
            report.software = machine.describe_software()  # ours may have loaded just now
            if options.json is not None:
                schema.write(report, options.json)
    return report


def _one_size(
    report: Report, size: Size, dtype: str, builders: Mapping[str, Builder], options: Options
) -> None:
    cells: dict[str, Cell] = {}
    errors: dict[str, float] = {}

    def skip(name: str, reason: str) -> None:
        reason = " ".join(reason.split())
        report.skipped.append(Skip(name, reason, size, dtype))
        options.log(f"  {name} skipped: {reason}")

    compiled.forget()
    gc.collect()
    gc.freeze()  # what is alive now stays so: a collection after each round need not look at it
    all_gradients = options.protocol != "tutorial"
    request = Request(size, DTYPES[dtype], options.device, options.seed)
    for name, build in builders.items():
        with _reported(name, skip):
            cell = build(request)
            # A long sequence is checked whole after the timing, as every contender is. Short, the
            # check bites more: rounding errors have not grown yet.
            begun = replace(request, size=replace(size, steps=min(size.steps, SHORT)))
            fresh = _inputs(cell, begun, seed=options.seed + 1)
            errors[name] = check(cell, begun.size, fresh, input_gradients=all_gradients)
            cells[name] = cell
    if options.protocol == "memory":
        _memory(report, cells, errors, request, skip)
    elif options.protocol == "kernels":
        measure = _kernels if size.steps == 1 else _traces
        measure(report, cells, errors, request, skip)
    else:
        _times(report, cells, errors, request, options, skip)
    del cells
    gc.unfreeze()
    gc.collect()
    if options.device == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def _reported(name: str, skip: Skipper) -> Iterator[None]:
    """One contender's trouble (out of memory, a compiler that fails) does not stop the others."""
    try:
        yield
    except WrongResult as error:
        skip(name, f"{WRONG}: {error}")
    except (Unavailable, NotMeasurable) as error:
        skip(name, str(error))
    except RuntimeError as error:
        skip(name, f"failed: {type(error).__name__}: {str(error)[:300]}")


def _inputs(cell: Cell, request: Request, seed: int) -> Inputs:
    states = STATES[cell.kind]
    inputs = make_inputs(request.size, request.dtype, request.device, seed, states=states)
    return inputs.shaped(cell.stacked)


def _times(
    report: Report,
    cells: Mapping[str, Cell],
    errors: dict[str, float],
    request: Request,
    options: Options,
    skip: Skipper,
) -> None:
    size = request.size
    all_gradients = options.protocol != "tutorial"
    timed: dict[str, Inputs] = {}
    runs: dict[str, Run] = {}
    for name, cell in cells.items():
        timed[name] = _inputs(cell, request, seed=options.seed + 2)
        with _reported(name, skip):
            runs[name] = PROTOCOLS[options.protocol](cell, timed[name])
    if not runs:
        return
    ceilings = _ceilings(report, request)
    measured = interleave(runs, seconds=options.seconds, rounds=options.rounds, seed=options.seed)
    floors = floor.model(size, request.dtype, ceilings, options.protocol)
    for name, rounds in measured.items():
        # After the timing, on the very inputs that were timed: nothing has drifted or been skipped.
        with _reported(name, skip):
            again = check(cells[name], size, timed[name], input_gradients=all_gradients)
            errors[name] = max(again, errors[name])
            known = floors if cells[name].kind == "lltm" else {}
            _record(report, request, name, rounds, errors[name], known)


def _record(
    report: Report,
    request: Request,
    name: str,
    rounds: Rounds,
    error: float,
    floors: Mapping[str, Floor],
) -> None:
    for metric, samples in rounds.items():
        report.results.append(
            Result.of(
                request.size,
                dtype_name(request),
                name,
                metric,
                "us",
                summarise([sample for one in samples for sample in one]),
                rounds=[round(median, 4) for median in round_medians(samples)],
                error=error,
                floor=floors.get(metric),
            )
        )


def dtype_name(request: Request) -> str:
    """`float32`, as the command line and the files spell it."""
    return str(request.dtype).removeprefix("torch.")


def _ceilings(report: Report, request: Request) -> Ceilings:
    """Measured once a dtype on a GPU; on the CPU once a size, with a copy as large as its data."""
    key = dtype_name(request)
    if request.device == "cpu":
        key = f"{key} {request.size}"
    if key not in report.ceilings:
        moved = floor.working_set(request.size, request.dtype)
        report.ceilings[key] = floor.measure_ceilings(request.dtype, request.device, moved)
    return report.ceilings[key]


def _memory(
    report: Report,
    cells: Mapping[str, Cell],
    errors: dict[str, float],
    request: Request,
    skip: Skipper,
) -> None:
    size = request.size
    row = size.batch * size.state * request.dtype.itemsize
    for name, cell in cells.items():
        with _reported(name, skip):
            if name == "compile-reduce-overhead":
                raise NotMeasurable(
                    "its graphs overwrite the outputs of the step before: it cannot run such a loop"
                )
            inputs = make_inputs(size, request.dtype, request.device, 3)
            peak = memory.peak_of_loop(cell, size, request.dtype, request.device, 4)
            saved = memory.saved_for_backward(cell, inputs)
            for metric, value, detail in (
                ("peak of training loop", peak, {"steps": float(memory.LOOP_STEPS)}),
                ("saved per step", saved, {"rows of B*S": saved / row}),
            ):
                one = summarise([float(value)])
                report.results.append(
                    Result.of(
                        size,
                        dtype_name(request),
                        name,
                        metric,
                        "bytes",
                        one,
                        error=errors[name],
                        detail=detail,
                    )
                )


def _needs_gpu(request: Request) -> None:
    if request.device != "cuda":
        raise ValueError("--protocol kernels counts GPU kernels: use --device cuda")


def _kernels(
    report: Report,
    cells: Mapping[str, Cell],
    errors: dict[str, float],
    request: Request,
    skip: Skipper,
) -> None:
    _needs_gpu(request)
    size = request.size
    ceilings = _ceilings(report, request)
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    one_set = 6 * size.batch * size.state * request.dtype.itemsize
    count = max(1, min(32, -(-4 * l2 // one_set)))
    for name, cell in cells.items():
        if name == baselines.OURS_AGAIN:
            continue
        sets = [
            make_inputs(size, request.dtype, request.device, 100 + i, states=STATES[cell.kind])
            for i in range(count)
        ]
        with _reported(name, skip):
            if name == "compile-reduce-overhead":
                raise NotMeasurable("its graphs overwrite the outputs that backward needs here")
            for metric, found in kernels.measure(cell, size, sets).items():
                rate = found.bytes_per_second
                detail = {
                    "launches": found.count,
                    "join_us": found.joins.median,
                    "pointwise_us": found.pointwise.median,
                    "pointwise_bytes_per_second": rate,
                    "fraction_of_copy": rate / ceilings.copy_bytes_per_second,
                }
                report.results.append(
                    Result.of(
                        size,
                        dtype_name(request),
                        name,
                        metric,
                        "us",
                        found.total,
                        error=errors[name],
                        detail=detail,
                    )
                )
                names = "; ".join(found.names)
                report.settings[f"kernels {name} {metric} {size} {dtype_name(request)}"] = names


def _traces(
    report: Report,
    cells: Mapping[str, Cell],
    errors: dict[str, float],
    request: Request,
    skip: Skipper,
) -> None:
    _needs_gpu(request)
    size, dtype = request.size, dtype_name(request)
    for name, cell in cells.items():
        inputs = _inputs(cell, request, seed=100)
        with _reported(name, skip):
            for metric, found in kernels.trace(cell, inputs).items():
                detail = {
                    "launches": found.count,
                    "before_us": found.before.median,
                    "busy_us": found.busy.median,
                    "waits_us": found.span.median - found.busy.median,
                }
                # Of the whole call, not a step of it, as the unit says.
                report.results.append(
                    Result.of(
                        size,
                        dtype,
                        name,
                        metric,
                        "us a call",
                        found.span,
                        error=errors[name],
                        detail=detail,
                    )
                )
                report.settings[f"kernels {name} {metric} {size} {dtype}"] = "; ".join(found.names)
