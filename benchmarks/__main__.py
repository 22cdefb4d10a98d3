"""``python -m benchmarks``: measure, show, draw."""

import argparse
import os
import shlex
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from . import baselines, draws, imports, plot, report, schema, session, sizes, speed_page
from . import targets as project_targets
from .problem import DTYPES
from .schema import Size
from .timing import PROTOCOLS


def size(text: str) -> Size:
    """An argparse type; argparse shows the message of this error alone."""
    try:
        return Size.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _measuring_options() -> argparse.ArgumentParser:
    """The options of all that measure; most fill :class:`session.Options`."""
    options = argparse.ArgumentParser(add_help=False)
    add = options.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--threads", type=int, default=1, metavar="N", help="torch's threads (default 1)")
    add("--contenders", nargs="+", default=[], metavar="NAME", help="measure only these")
    add("--seconds", type=float, default=1.0, help="per contender and size (default 1)")
    add("--rounds", type=int, default=15, help="interleaved rounds (default 15)")
    add("--deadline", type=float, metavar="S", help="begin no further size after S seconds")
    add("--seed", type=int, default=0)
    return options


def _dtype_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    add = options.add_argument
    kinds = tuple(name for name in DTYPES if name != "tf32")
    add("--dtype", nargs="+", default=["float32"], choices=kinds, dest="dtypes")
    add(
        "--tf32",
        choices=("on", "off"),
        help="set torch's flags for GEMMs (off by default) and for cuDNN (on by default)",
    )
    return options


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    measuring = _measuring_options()
    stored = argparse.ArgumentParser(add_help=False)
    stored.add_argument("--json", type=Path, metavar="FILE", help="store the results")

    shared = [measuring, _dtype_options(), stored]
    cell = commands.add_parser("cell", parents=shared, help="one step")
    cell.add_argument("--sizes", nargs="+", type=size, metavar="B,I,S")
    cell.add_argument("--protocol", choices=(*PROTOCOLS, "memory", "kernels"))

    layer = commands.add_parser("layer", parents=shared, help="whole sequences")
    layer.add_argument("--sizes", nargs="+", type=size, metavar="B,I,S,T")
    layer.add_argument("--protocol", choices=("split", "stream", "graph", "kernels"))

    grid = commands.add_parser("grid", parents=shared, help="the fixed grid, with verdicts")
    grid.add_argument("what", nargs="?", choices=("cell", "layer"), default="cell")
    grid.add_argument("--protocol", choices=("tutorial", "split", "stream"))

    drawn = commands.add_parser(
        "random", parents=[measuring, stored], help="layers or steps drawn by the seed"
    )
    drawn.add_argument("--what", choices=tuple(draws.PEERS), default="layer")
    drawn.add_argument("--count", type=int, default=300, help="how many are drawn (default 300)")
    drawn.add_argument(
        "--again", type=int, default=draws.AGAIN, help="times that a slower one is measured again"
    )
    drawn.add_argument("--only", nargs=2, metavar=("SIZE", "DTYPE"), help="this one alone")

    imported = commands.add_parser(
        "import", parents=[stored], help="import lltm_conda, after torch"
    )
    imported.add_argument("--rounds", type=int, default=20)

    for name, text in (
        ("show", "print stored results"),
        ("targets", "compare stored results with the project's targets"),
        ("plot", "draw stored grids"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("files", nargs="+", type=Path)
    command.add_argument("--out", type=Path, metavar="DIR", help="default: beside each file")
    commands.add_parser("speed-page", help="write the docs' table from the stored results")
    return top


def command_line(argv: list[str]) -> str:
    """The command as stored: without the folder of the file that it writes."""
    words, is_file = [], False
    for word in argv:
        words.append(Path(word).name if is_file else word)
        is_file = word == "--json"
    return shlex.join(["python", "-m", "benchmarks", *words])


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        if arguments.command in ("cell", "layer", "grid"):
            return _measure(arguments, command_line(argv), console)
        if arguments.command == "random":
            return _measure_random(arguments, command_line(argv), console)
        if arguments.command == "import":
            found = imports.measure(command_line(argv), arguments.rounds)
            if arguments.json:
                schema.write(found, arguments.json)
            report.show(found, console)
            return 0
        return _show(arguments, console)
    except (ValueError, OSError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def _measure(arguments: argparse.Namespace, line: str, console: Console) -> int:
    is_grid = arguments.command == "grid"
    is_layer = "layer" in (arguments.command, vars(arguments).get("what"))
    protocol = arguments.protocol or ("split" if is_layer else "tutorial")
    if is_layer and protocol == "tutorial":
        raise ValueError("the tutorial protocol is for one step: use split or stream for a layer")
    if arguments.tf32:
        torch.backends.cuda.matmul.allow_tf32 = arguments.tf32 == "on"
        torch.backends.cudnn.allow_tf32 = arguments.tf32 == "on"
    names = {option.name for option in fields(session.Options)} & vars(arguments).keys()
    chosen = {name: getattr(arguments, name) for name in names} | {"protocol": protocol}
    log = partial(console.print, style="dim", highlight=False)
    options = session.Options(**chosen, log=log)
    if is_grid:
        measured = sizes.layer_grid() if is_layer else sizes.cell_grid()
    else:
        measured = arguments.sizes or sizes.defaults(is_layer, arguments.device, protocol)
    for each in measured:
        if is_layer != (each.steps > 1):
            needs = "layer needs B,I,S,T with T > 1" if is_layer else "a step needs B,I,S"
            raise ValueError(f"{arguments.command} got the size {each}; {needs}")
    builders = baselines.layer_contenders() if is_layer else baselines.cell_contenders()
    found = session.new_report(arguments.command, line, options)
    session.run_sizes(found, measured, builders, options)
    report.show(found, console)
    wrong = any(skip.reason.startswith(session.WRONG) for skip in found.skipped)
    return 1 if wrong or not found.results else 0


def _measure_random(arguments: argparse.Namespace, line: str, console: Console) -> int:
    protocol = "stream" if (arguments.device, arguments.what) == ("cuda", "layer") else "split"
    names = {option.name for option in fields(session.Options)} & vars(arguments).keys()
    chosen = {name: getattr(arguments, name) for name in names} | {"protocol": protocol}
    log = partial(console.print, style="dim", highlight=False)
    options = session.Options(**chosen, log=log)
    if arguments.only:
        found_draws = [draws.Draw(Size.parse(arguments.only[0]), arguments.only[1])]
    else:
        found_draws = draws.draw(arguments.what, arguments.seed, arguments.count, arguments.device)
    found = session.new_report("random", line, options)
    draws.measure(found, arguments.what, found_draws, arguments.again, options)
    report.show(found, console)
    wrong = any(skip.reason.startswith(session.WRONG) for skip in found.skipped)
    return 1 if wrong or not found.results else 0


def _show(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.command == "speed-page":
        console.print(f"wrote {speed_page.write()}", highlight=False)
    elif arguments.command == "show":
        for path in arguments.files:
            report.show(schema.read(path), console)
    elif arguments.command == "targets":
        console.print(project_targets.table([schema.read(path) for path in arguments.files]))
    else:
        for path in arguments.files:
            stem = (arguments.out or path.parent) / path.stem
            console.print(f"wrote {plot.draw(schema.read(path), stem)}", highlight=False)
    return 0


if __name__ == "__main__":
    # A reader that stops early, such as `head`, is no error.
    try:
        sys.exit(main())
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
