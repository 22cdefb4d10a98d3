"""The forms in which a report is printed, by the option that asks for each."""

from __future__ import annotations

from collections.abc import Callable

from . import blocks, report

FORMS: dict[str, Callable[[report.Report], None]] = {
    "text": blocks.print_blocks,
    "rows": blocks.print_all,
    "json": report.print_json,
    "github": report.print_github,
    "markdown": report.print_markdown,
}
