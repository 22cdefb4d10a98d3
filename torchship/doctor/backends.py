"""Backends of other packages that `import torch` loads by itself, and that fail.

From torch 2.5 on, an import of torch calls what packages enter under `torch.backends`. Where such a
package does not load, neither does torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from ..judge import codes, fixes
from ..judge.records import REJECTED, Finding, Runtime, TorchInstall
from ..judge.text import printable, read_regular
from .environment.installed import Distribution
from .environment.standards import normal
from .report import FAILS, Row, notice

_FIRST_TORCH = (2, 5)
_VARIABLE = "TORCH_DEVICE_BACKEND_AUTOLOAD"
_MAX_ENTRY_POINTS = 1 << 16


def failing(
    packages: Iterable[Distribution],
    rows: Sequence[Row],
    runtime: Runtime,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[Row]:
    """A row for each backend whose binaries do not work; `rows` are the verdicts on binaries."""
    torch = runtime.torch
    if torch is None or torch.version_tuple < _FIRST_TORCH or environ.get(_VARIABLE) == "0":
        return
    for package in packages:
        backend = _backend_of(package)
        failing = [
            row
            for row in rows
            if row.state == FAILS and normal(row.package or "") == normal(package.name)
        ]
        if backend and failing:
            yield notice(
                _finding(backend, failing[0], torch),
                package.place,
                package="torch",
                version=torch.version,
            )


def _backend_of(package: Distribution) -> str:
    """The backend that a package enters for torch; "" if it enters none."""
    with suppress(OSError):
        content = read_regular(package.place / "entry_points.txt", _MAX_ENTRY_POINTS)
        _, begin, rest = content.decode("utf-8", "replace").partition("[torch.backends]")
        for line in rest.partition("\n[")[0].splitlines():
            name, equals, _ = line.partition("=")
            if begin and equals:
                return printable(name.strip()[:80])
    return ""


def _finding(backend: str, row: Row, torch: TorchInstall) -> Finding:
    return Finding(
        dimension="backends",
        status=REJECTED,
        code=codes.BACKEND_FAILS,
        observed=f"{row.name}: {row.summary}",
        needed=f"a backend {backend} that loads, or none",
        why=f"import torch loads the backend {backend} of {row.name} by itself, which fails: "
        f"{row.summary}",
        fix=fixes.set_variable(_VARIABLE, "0"),
    )
