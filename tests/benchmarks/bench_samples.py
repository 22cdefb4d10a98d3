"""Reports made up for the tests: their figures are nobody's measurement."""

from __future__ import annotations

from benchmarks.schema import Machine, Report, Result, Size, Skip, Software

SIZE = Size(16, 32, 128)


def result(
    contender: str,
    rounds: list[float],
    *,
    metric: str = "forward",
    size: Size = SIZE,
    unit: str = "us",
    detail: dict[str, float] | None = None,
) -> Result:
    median = sorted(rounds)[len(rounds) // 2]
    return Result(
        size=size,
        dtype="float32",
        contender=contender,
        metric=metric,
        unit=unit,
        median=median,
        q1=min(rounds),
        q3=max(rounds),
        minimum=min(rounds),
        count=len(rounds),
        rounds=rounds,
        error=1e-7,
        detail=detail or {},
    )


def report(*results: Result, command: str = "cell", **changes: object) -> Report:
    fields: dict[str, object] = {
        "command": command,
        "command_line": f"python -m benchmarks {command}",
        "created": "2026-01-02T03:04:05+00:00",
        "device": "cpu",
        "protocol": "tutorial",
        "threads": 1,
        "machine": Machine("a processor", 2, "AVX2", 0.1, "Linux 6.1", driver=None),
        "software": Software("3.11.7", "2.13.0", None, None, "abc", binaries={"glue.so": "00"}),
        "settings": {"rounds": "3"},
        "results": list(results),
        "skipped": [Skip("cuda", "no GPU", SIZE, "float32")],
    }
    return Report(**(fields | changes))  # type: ignore[arg-type]
