"""`torchship audit WHEEL`: tells which environments a wheel serves."""

import argparse
from pathlib import Path

from ..doctor.wheels import audit
from ..judge.project import NOBODY


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheel", type=Path, metavar="WHEEL", help="a .whl file")
    parser.add_argument(
        "--json", action="store_true", help="print the report as JSON (docs/fails/compat.md)"
    )


def run(options: argparse.Namespace) -> int:
    return audit.main(NOBODY, options.wheel, as_json=options.json)
