"""``python -m benchmarks``: measure, show, draw."""

import argparse
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from . import baselines, constants, plot, report, schema, session, sizes, targets
from .contender import DTYPES
from .schema import Size
from .timing import PROTOCOLS


def size(text: str) -> Size:
    """An argparse type; argparse shows the message of this error alone."""
    try:
        return Size.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)

    stored = argparse.ArgumentParser(add_help=False)
    stored.add_argument("--json", type=Path, metavar="FILE", help="store the results")
    measuring = argparse.ArgumentParser(add_help=False, parents=[stored])
    add = measuring.add_argument  # most options fill session.Options
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--threads", type=int, default=1, metavar="N", help="torch's threads (default 1)")
    add("--contenders", nargs="+", default=[], metavar="NAME", help="measure only these")
    add("--seconds", type=float, default=1.0, help="per contender and size (default 1)")
    add("--rounds", type=int, default=15, help="interleaved rounds (default 15)")
    add("--deadline", type=float, metavar="S", help="begin no further size after S seconds")
    add("--seed", type=int, default=0)
    shared = argparse.ArgumentParser(add_help=False, parents=[measuring])
    kinds = tuple(name for name in DTYPES if name != "tf32")
    shared.add_argument("--dtype", nargs="+", default=["float32"], choices=kinds, dest="dtypes")
    flags = "set torch's flags for GEMMs (off by default) and for cuDNN (on by default)"
    shared.add_argument("--tf32", choices=("on", "off"), help=flags)

    cell = commands.add_parser("cell", parents=[shared], help="one step")
    cell.add_argument("--sizes", nargs="+", type=size, metavar="B,I,S")
    cell.add_argument("--protocol", choices=(*PROTOCOLS, "memory", "kernels"))

    layer = commands.add_parser("layer", parents=[shared], help="whole sequences")
    layer.add_argument("--sizes", nargs="+", type=size, metavar="B,I,S,T")
    layer.add_argument("--protocol", choices=("split", "stream", "graph", "kernels"))

    grid = commands.add_parser("grid", parents=[shared], help="the fixed grid, with verdicts")
    grid.add_argument("what", nargs="?", choices=("cell", "layer"), default="cell")
    grid.add_argument("--protocol", choices=("tutorial", "split", "stream"))

    text = "layers or steps drawn by the seed"
    drawn = commands.add_parser("random", parents=[measuring], help=text)
    drawn.add_argument("--what", choices=tuple(session.PEERS), default="layer")
    drawn.add_argument("--count", type=int, default=300, help="how many are drawn (default 300)")
    text = "times that a slower one is measured again (default 3)"
    drawn.add_argument("--again", type=int, default=3, help=text)
    drawn.add_argument("--only", nargs=2, metavar=("SIZE", "DTYPE"), help="this one alone")

    text = "how long the parts of a step take on this GPU, for csrc/kernels/cuda/step_plan.cu"
    costs = commands.add_parser("constants", help=text)
    costs.add_argument("--seed", type=int, default=0)
    costs.add_argument("--count", type=int, default=200, help="steps of each dtype (default 200)")

    text = "import lltm_conda, after torch"
    imported = commands.add_parser("import", parents=[stored], help=text)
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
    """The command for the result file, without the folder of the file that it writes."""
    pairs = zip(["", *argv], argv, strict=False)
    words = [Path(word).name if before == "--json" else word for before, word in pairs]
    return shlex.join(["python", "-m", "benchmarks", *words])


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        if "json" not in arguments:  # the command stores no report
            return _show(arguments, console)
        found = _measure(arguments, command_line(argv), console)
        report.show(found, console)
        wrong = any(skip.reason.startswith(session.WRONG) for skip in found.skipped)
        return 1 if wrong or not found.results else 0
    except (ValueError, OSError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def _measure(arguments: argparse.Namespace, line: str, console: Console) -> schema.Report:
    if arguments.command == "import":
        found = session.run_import(line, arguments.rounds)
        if arguments.json:
            schema.write(found, arguments.json)
        return found
    command = arguments.command
    is_layer = "layer" in (command, vars(arguments).get("what"))
    if command == "random":
        protocol = "stream" if is_layer and arguments.device == "cuda" else "split"
    else:
        protocol = arguments.protocol or ("split" if is_layer else "tutorial")
    if is_layer and protocol == "tutorial":
        raise ValueError("the tutorial protocol is for one step: use split or stream for a layer")
    if vars(arguments).get("tf32"):
        torch.backends.cuda.matmul.allow_tf32 = arguments.tf32 == "on"
        torch.backends.cudnn.allow_tf32 = arguments.tf32 == "on"
    names = {option.name for option in fields(session.Options)} & vars(arguments).keys()
    chosen = {name: getattr(arguments, name) for name in names} | {"protocol": protocol}
    log = partial(console.print, style="dim", highlight=False)
    options = session.Options(**chosen, log=log)
    found = session.new_report(command, line, options)
    if command == "random":
        what, seed, only = arguments.what, arguments.seed, arguments.only
        if only:
            drawn = [sizes.Draw(Size.parse(only[0]), only[1])]
        else:
            drawn = sizes.draw(what, seed, arguments.count, arguments.device)
        session.run_draws(found, what, drawn, arguments.again, options)
    else:
        builders = baselines.LAYERS if is_layer else baselines.CELLS
        session.run_sizes(found, _sizes(arguments, is_layer, protocol), builders, options)
    return found


def _sizes(arguments: argparse.Namespace, is_layer: bool, protocol: str) -> Sequence[Size]:
    """The sizes that were asked for, or those that the command measures by default."""
    if arguments.command == "grid":
        return sizes.layer_grid() if is_layer else sizes.cell_grid()
    for each in arguments.sizes or ():
        if is_layer != (each.steps > 1):
            needs = "layer needs B,I,S,T with T > 1" if is_layer else "a step needs B,I,S"
            raise ValueError(f"{arguments.command} got the size {each}; {needs}")
    return arguments.sizes or sizes.defaults(is_layer, arguments.device, protocol)


def _show(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.command == "constants":
        constants.show(arguments.seed, arguments.count, console)
    elif arguments.command == "speed-page":
        console.print(f"wrote {targets.write_page()}", highlight=False)
    elif arguments.command == "show":
        for path in arguments.files:
            report.show(schema.read(path), console)
    elif arguments.command == "targets":
        console.print(targets.table([schema.read(path) for path in arguments.files]))
    else:
        for path in arguments.files:
            stem = (arguments.out or path.parent) / path.stem
            console.print(f"wrote {plot.draw(schema.read(path), stem)}", highlight=False)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that stops early is no error
    sys.exit(main())
