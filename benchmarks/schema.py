"""The content of a result file, a :class:`Report`, and the functions that write and read it."""

import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

SCHEMA_VERSION = 1
#: Fields of older files that the reader ignores: a modelled least time, and the rates behind it.
LEFT_OUT = ("floor", "ceilings")


@dataclass(frozen=True)
class Size:
    """Batch size B, input features I, state size S, and T steps (1 for a single step)."""

    batch: int
    inputs: int
    state: int
    steps: int = 1

    def __str__(self) -> str:
        text = f"B{self.batch} I{self.inputs} S{self.state}"
        return text if self.steps == 1 else f"{text} T{self.steps}"

    @classmethod
    def parse(cls, text: str) -> "Size":
        """Read ``B,I,S`` or ``B,I,S,T``, positive integers."""
        if re.fullmatch(r"[1-9][0-9]*(,[1-9][0-9]*){2,3}", text) is None:
            raise ValueError(
                f"size {text!r} is not B,I,S or B,I,S,T with positive integers: "
                "write for example 16,32,128"
            )
        return cls(*map(int, text.split(",")))


@dataclass(frozen=True)
class Machine:
    """The hardware, its load and the system's kernel, without the name of the host."""

    cpu: str
    cores: int
    cpu_capability: str
    load_average: float
    kernel: str
    gpu: str | None = None
    gpu_compute_capability: str | None = None
    gpu_multiprocessors: int | None = None
    gpu_memory_bytes: int | None = None
    driver: str | None = None


@dataclass(frozen=True)
class Software:
    """The versions, and the binaries of ours that were measured."""

    python: str
    torch: str
    torch_cuda: str | None
    cudnn: int | None
    commit: str
    lltm: str | None = None
    door: str | None = None
    """The loaded glue, such as `stable210` or `aten29-abi1`."""
    binaries: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of every binary of ours in the process, by file name."""


class Measured(NamedTuple):
    """The samples of one metric of a contender, as a protocol returns them."""

    unit: str
    rounds: list[list[float]]
    """The samples of each round."""
    detail: dict[str, float]
    names: Sequence[str] = ()
    """The names of the kernels that ran."""


@dataclass(frozen=True)
class Result:
    """The result of one contender for one size, dtype and metric."""

    median: float
    q1: float
    q3: float
    minimum: float
    count: int
    size: Size
    dtype: str
    contender: str
    metric: str
    unit: str
    rounds: list[float] = field(default_factory=list)
    """The median of each round, in order; paired ratios need these medians."""
    error: float | None = None
    """The largest relative error of the outputs and gradients against float64."""
    detail: dict[str, float] = field(default_factory=dict)


def summarise(samples: Sequence[float]) -> dict[str, Any]:
    """The quartiles, the minimum and the count: the first fields of a :class:`Result`."""
    several = samples if len(samples) > 1 else [*samples, *samples]
    q1, median, q3 = statistics.quantiles(several, n=4, method="inclusive")
    spread = {"median": median, "q1": q1, "q3": q3}
    return spread | {"minimum": min(samples), "count": len(samples)}


def summarised(measured: Measured, **fields: Any) -> Result:
    """The :class:`Result` of the samples; `fields` are its fields that `measured` does not give."""
    fields |= summarise([sample for samples in measured.rounds for sample in samples])
    fields["rounds"] = [round(statistics.median(samples), 4) for samples in measured.rounds]
    return Result(**fields, unit=measured.unit, detail=measured.detail)


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """The median over the rounds of the ratio of two contenders of one run.

    A slow round slows both contenders, so the round's ratio hardly changes.
    """
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))


@dataclass(frozen=True)
class Skip:
    contender: str
    reason: str
    size: Size | None = None
    dtype: str | None = None


@dataclass
class Report:
    command: str
    command_line: str
    created: str
    device: str
    protocol: str
    threads: int
    machine: Machine
    software: Software
    settings: dict[str, str] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    skipped: list[Skip] = field(default_factory=list)
    schema: int = SCHEMA_VERSION


def to_json(report: Report) -> str:
    return json.dumps(asdict(report), indent=1) + "\n"


def from_json(text: str) -> Report:
    """Read a report; raises ValueError for another schema, and for unknown or missing fields."""
    data = json.loads(text)
    found = data.get("schema") if isinstance(data, dict) else None
    if found != SCHEMA_VERSION:
        raise ValueError(
            f"this is a result file of schema {found!r}; this reader needs {SCHEMA_VERSION}: "
            "measure again with the present commit, or read the file with the commit that it names"
        )
    try:
        parts = {
            "machine": Machine(**data["machine"]),
            "software": Software(**data["software"]),
            "results": [_sized(Result, one) for one in data["results"]],
            "skipped": [_sized(Skip, one) for one in data["skipped"]],
        }
        return Report(**{k: v for k, v in data.items() if k not in LEFT_OUT} | parts)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"this is no report: {error}") from error


def _sized(kind: Any, data: dict[str, Any]) -> Any:
    fields = {k: v for k, v in data.items() if k not in LEFT_OUT}
    return kind(**fields | {"size": data["size"] and Size(**data["size"])})


def write(report: Report, path: Path) -> None:
    """Write the report in one step: a killed run leaves the last complete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(to_json(report), encoding="utf-8")
    partial.replace(path)


def read(path: Path) -> Report:
    """Read a result file; an error names the file."""
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
