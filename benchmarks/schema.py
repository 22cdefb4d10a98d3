"""The content of a result file, a :class:`Report`, and the functions that write and read it."""

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from measurements import storage

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Size:
    """Batch size B, input features I, state size S, and T steps (1 for a single step)."""

    batch: int
    inputs: int
    state: int
    steps: int = 1

    def __str__(self) -> str:
        step = f"B{self.batch} I{self.inputs} S{self.state}"
        return step if self.steps == 1 else f"{step} T{self.steps}"

    @classmethod
    def parse(cls, numbers: str) -> "Size":
        """Read ``B,I,S`` or ``B,I,S,T``, positive integers."""
        if re.fullmatch(r"[1-9][0-9]*(,[1-9][0-9]*){2,3}", numbers) is None:
            raise ValueError(
                f"size {numbers!r} is not B,I,S or B,I,S,T with positive integers: "
                "write for example 16,32,128"
            )
        return cls(*map(int, numbers.split(",")))


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


@dataclass(frozen=True)
class Spread:
    """The quartiles, the minimum and the count of some samples."""

    median: float
    q1: float
    q3: float
    minimum: float
    count: int


def summarise(samples: Sequence[float]) -> Spread:
    several = samples if len(samples) > 1 else [*samples, *samples]
    q1, median, q3 = statistics.quantiles(several, n=4, method="inclusive")
    return Spread(median=median, q1=q1, q3=q3, minimum=min(samples), count=len(samples))


class Subject(NamedTuple):
    """What a result is about: a contender at one size, in one dtype."""

    contender: str
    size: Size
    dtype: str


def summarised(
    subject: Subject, metric: str, measured: Measured, error: float | None = None
) -> Result:
    """The result that the samples of a metric give, with the error that the check found."""
    spread = summarise([sample for samples in measured.rounds for sample in samples])
    return Result(
        **asdict(spread),
        size=subject.size,
        dtype=subject.dtype,
        contender=subject.contender,
        metric=metric,
        unit=measured.unit,
        rounds=[statistics.median(samples) for samples in measured.rounds],
        error=error,
        detail=measured.detail,
    )


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


def to_document(report: Report) -> dict[str, object]:
    return asdict(report)


def from_document(document: object) -> Report:
    """Read a report; raises ValueError for another schema, and for unknown or missing fields."""
    version = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(document, dict) or version != SCHEMA_VERSION:
        raise ValueError(
            f"this is a result file of schema {version!r}; this reader needs {SCHEMA_VERSION}: "
            "measure again with the present commit, or read the file with the commit that it names"
        )
    try:
        parts = {
            "machine": Machine(**document["machine"]),
            "software": Software(**document["software"]),
            "results": [Result(**_with_size(record)) for record in document["results"]],
            "skipped": [Skip(**_with_size(record)) for record in document["skipped"]],
        }
        return Report(**(document | parts))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"this is not a report: {error}") from error


def _with_size(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stored result or skip, with the size as a :class:`Size`."""
    return {**record, "size": record["size"] and Size(**record["size"])}


def write(report: Report, path: Path) -> None:
    """Write the report in one step: a killed run leaves the last complete file."""
    storage.save(to_document(report), path)


def read(path: Path) -> Report:
    """Read a result file; an error names the file."""
    document = storage.load(path)
    try:
        return from_document(document)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
