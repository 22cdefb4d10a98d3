"""`torchship port FOLDER`: prints what a port of an extension to the stable ABI has to do."""

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from ..judge.text import printable, some
from .counterparts import Status
from .report import Place, Report, Row, read_folder

_WIDTH = 100
_TITLES = {
    Status.COUNTERPART: "with a counterpart",
    Status.DISPATCHER: "through torch's dispatcher",
    Status.WORKAROUND: "without a counterpart: a workaround",
    Status.UNKNOWN: "without a counterpart: the table knows no workaround",
    Status.STABLE: "stable already",
}
DESCRIPTION = (
    "List every call, type and macro of torch in the C++ and CUDA sources of a folder, with its "
    "counterpart in torch's stable ABI and the torch that has it first, or the workaround."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Gives the parser of `port` its arguments."""
    parser.description = DESCRIPTION
    parser.add_argument("folder", type=Path, help="the sources of an extension, or one source file")
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="NAME",
        help="leave out folders of this name, such as third_party; may be given again",
    )
    parser.add_argument(
        "--places", action="store_true", help="name every file and line, not only the first ones"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(options: argparse.Namespace) -> int:
    """Prints the report; returns 2 if there is no such folder, or no source in it, else 0."""
    try:
        report = read_folder(options.folder, tuple(options.exclude))
    except NotADirectoryError as error:
        print(printable(str(error)), file=sys.stderr)
        return 2
    if report.files == 0:
        folder = printable(options.folder)
        print(
            f"{folder} holds no C++ or CUDA sources; name the folder that does, such as csrc",
            file=sys.stderr,
        )
        return 2
    if options.json:
        print(json.dumps(to_json(report), indent=2))
    else:
        print("\n".join(lines(report, all_places=options.places)))
    return 0


def to_json(report: Report) -> dict[str, object]:
    """The report as JSON. While `schema` is 1, no field is removed."""
    return {
        "schema": 1,
        "folder": printable(report.folder),
        "files": report.files,
        "unread": [
            {"file": printable(unread.file), "reason": unread.reason} for unread in report.unread
        ],
        "summary": {
            "uses": report.to_port,
            "counts": {status.value: report.count(status) for status in Status},
            "share": report.share,
            "torch": report.torch,
            "headers": report.headers,
        },
        "uses": [_row_json(row) for row in report.rows],
        "includes": [
            {
                "header": printable(include.header),
                "replacement": include.replacement,
                "places": _places_json(include.places),
            }
            for include in report.includes
        ],
    }


def _row_json(row: Row) -> dict[str, object]:
    counterpart = row.counterpart
    return {
        "what": row.what.value,
        "name": printable(row.name),
        "count": row.count,
        "status": counterpart.status.value,
        "stable": counterpart.stable,
        "torch": counterpart.torch,
        "headers": counterpart.built_with,
        "advice": counterpart.advice,
        "places": _places_json(row.places),
    }


def _places_json(places: list[Place]) -> list[list[object]]:
    return [[printable(place.file), place.line] for place in places]


def lines(report: Report, *, all_places: bool = False) -> Iterator[str]:
    """The report as text, line by line."""
    yield from _summary(report)
    for status, title in _TITLES.items():
        rows = report.having(status)
        if rows and status is not Status.STABLE:
            yield ""
            yield f"{title} ({sum(row.count for row in rows)})"
            for row in rows:
                yield from _row_lines(row, all_places=all_places)
    yield from _include_lines(report)
    if report.unread:
        yield ""
        yield f"not read ({len(report.unread)})"
        for unread in report.unread:
            yield f"  {printable(unread.file)}: {unread.reason}"


def _summary(report: Report) -> Iterator[str]:
    yield f"{printable(report.folder)}: {report.files} source file{'s' * (report.files != 1)}"
    already = report.count(Status.STABLE)
    if report.share is None:
        yield f"nothing to port; {already} uses of torch's stable ABI"
    else:
        have = report.count(Status.COUNTERPART, Status.DISPATCHER)
        yield f"{report.to_port} uses of torch outside its stable ABI, {already} inside"
        yield f"{have} of these ({report.share:.0%}) have a counterpart; left are:"
        yield f"  {report.count(Status.WORKAROUND)} with a workaround"
        yield f"  {report.count(Status.UNKNOWN)} of which this table knows nothing"
    if report.torch:
        yield f"the port would run on torch {report.torch} and newer ({_reason(report)})"
    if report.headers and report.headers != report.torch:
        names = [row.name for row in report.built_with(report.headers)]
        yield f"and compile with the headers of torch {report.headers} and newer ({some(names)})"


def _reason(report: Report) -> str:
    return some([row.name for row in report.needing(report.torch)])


def _row_lines(row: Row, *, all_places: bool) -> Iterator[str]:
    counterpart = row.counterpart
    target = f" -> {counterpart.stable}" if counterpart.stable else ""
    since = f", torch {counterpart.torch}" if counterpart.stable else ""
    if counterpart.stable and counterpart.headers:
        since += f" with headers of {counterpart.headers}"
    yield f"{row.count:5}  {printable(row.name)}{target}{since}"
    if counterpart.advice:
        yield from _wrapped(counterpart.advice)
    most = len(row.places) if all_places else 2
    named = [f"{printable(place.file)}:{place.line}" for place in row.places[:most]]
    more = f" and {row.count - most} more" if row.count > most else ""
    yield from _wrapped(", ".join(named) + more)


def _wrapped(message: str) -> list[str]:
    indent = " " * 9
    return textwrap.wrap(
        message, width=_WIDTH, initial_indent=indent, subsequent_indent=indent
    ) or [indent]


def _include_lines(report: Report) -> Iterator[str]:
    foreign = [include for include in report.includes if include.replacement]
    if foreign:
        yield ""
        yield f"headers ({sum(len(include.places) for include in foreign)})"
    for include in foreign:
        yield f"{len(include.places):5}  {printable(include.header)} -> {include.replacement}"
