"""``python -m benchmarks``: measure, show, compare with the targets, draw."""

import argparse
import shlex
import signal
import sys
from pathlib import Path

from rich.console import Console

from . import constants, plot, report, schema, session, sizes, targets
from .contender import DTYPES, OURS
from .schema import Size
from .sizes import Draw
from .timing import PROTOCOLS


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)

    stored = argparse.ArgumentParser(add_help=False)
    stored.add_argument("--json", type=Path, metavar="FILE", help="store the results")
    measuring = argparse.ArgumentParser(add_help=False, parents=[stored])
    add = measuring.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--threads", type=int, default=1, metavar="N", help="torch's threads (default 1)")
    add("--contenders", nargs="+", default=[], metavar="NAME", help="measure only these")
    add("--sizes", nargs="+", metavar="B,I,S[,T]", help="measure only these; T for a layer")
    add("--seconds", type=float, default=1.0, help="per contender and size (default 1)")
    add("--rounds", type=int, default=15, help="interleaved rounds (default 15)")
    add("--deadline", type=float, metavar="S", help="begin no further size after S seconds")
    add("--seed", type=int, default=0)
    shared = argparse.ArgumentParser(add_help=False, parents=[measuring])
    kinds = tuple(name for name in DTYPES if name != "tf32")
    shared.add_argument("--dtype", nargs="+", default=["float32"], choices=kinds, dest="dtypes")
    text = "set torch's tf32 flags of GEMMs (off by default) and of cuDNN (on by default)"
    shared.add_argument("--tf32", choices=("on", "off"), help=text)

    cell = commands.add_parser("cell", parents=[shared], help="one step")
    cell.add_argument("--protocol", choices=(*PROTOCOLS, "memory", "kernels"))
    cell.set_defaults(what="cell")

    layer = commands.add_parser("layer", parents=[shared], help="whole sequences")
    layer.add_argument("--protocol", choices=("split", "stream", "graph", "kernels"))
    layer.set_defaults(what="layer")

    grid = commands.add_parser("grid", parents=[shared], help="the fixed grid, with verdicts")
    grid.add_argument("what", nargs="?", choices=("cell", "layer"), default="cell")
    grid.add_argument("--protocol", choices=("tutorial", "split", "stream"))

    drawn = commands.add_parser("random", parents=[measuring], help="random layers or steps")
    drawn.set_defaults(protocol=None)
    add = drawn.add_argument
    add("--what", choices=tuple(session.PEERS), default="layer")
    add("--count", type=int, default=300, help="the number of draws (default 300)")
    add("--again", type=int, default=3, help="repeats of a draw where ours is slower (default 3)")
    add("--dtype", nargs="+", choices=tuple(DTYPES), dest="dtypes", help="of --sizes, or of draws")

    costs = commands.add_parser("constants", help="the times of a step's parts on this GPU")
    costs.add_argument("--seed", type=int, default=0)
    costs.add_argument("--count", type=int, default=200, help="most steps per family (default 200)")

    imported = commands.add_parser("import", parents=[stored], help="the time of the import")
    imported.add_argument("--rounds", type=int, default=20)
    imported.set_defaults(device="cpu", protocol="fresh process", threads=1, seconds=1.0, seed=0)

    for name, text in (
        ("show", "print stored results"),
        ("targets", "compare stored results with the project's targets"),
        ("plot", "draw stored grids and random draws"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("files", nargs="+", type=Path)
    command.add_argument("--out", type=Path, metavar="DIR", help="default: beside each file")
    commands.add_parser("speed-page", help="write the docs' table from the stored results")
    return top


def command_line(argv: list[str]) -> str:
    """The command as the result file states it: without the folder of the path after ``--json``."""
    pairs = zip(["", *argv], argv, strict=False)
    words = [Path(word).name if before == "--json" else word for before, word in pairs]
    return shlex.join(["python", "-m", "benchmarks", *words])


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        if "json" not in arguments:  # the command makes no report
            return _show(arguments, console)
        arguments.command_line = command_line(argv)
        found = _measure(arguments)
        report.show(found, console)
        wrong = any(skip.reason.startswith(session.WRONG) for skip in found.skipped)
        return 1 if wrong or not found.results else 0
    except (ValueError, OSError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def _measure(arguments: argparse.Namespace) -> schema.Report:
    if arguments.command == "import":
        return session.run_import(arguments)
    is_random, is_layer = arguments.command == "random", arguments.what == "layer"
    if arguments.protocol is None:
        is_stream = is_random and is_layer and arguments.device == "cuda"
        step = "split" if is_random else "tutorial"
        arguments.protocol = "stream" if is_stream else "split" if is_layer else step
    if is_layer and arguments.protocol == "tutorial":
        raise ValueError("the tutorial protocol is for one step: use split or stream for a layer")
    if is_random:
        arguments.contenders = arguments.contenders or (session.PEERS[arguments.what], OURS)
    elif arguments.tf32:
        session.set_tf32(arguments.tf32 == "on")
    found = session.new_report(arguments)
    session.run(found, _draws(arguments), arguments)
    return found


def _draws(arguments: argparse.Namespace) -> list[Draw]:
    """The pairs of size and dtype to measure; without `--sizes`, the command chooses the sizes."""
    is_layer = arguments.what == "layer"
    if arguments.sizes:
        found = [Size.parse(text) for text in arguments.sizes]
    elif arguments.command == "random":
        drawn = sizes.draw(arguments.what, arguments.seed, arguments.count, arguments.device)
        return [draw for draw in drawn if draw.dtype in (arguments.dtypes or DTYPES)]
    elif arguments.command == "grid":
        found = sizes.layer_grid() if is_layer else sizes.cell_grid()
    else:
        found = sizes.DEFAULTS[arguments.what, arguments.device]
    for size in found:
        if is_layer != (size.steps > 1):
            needs = "a layer needs B,I,S,T with T > 1" if is_layer else "a step needs B,I,S"
            raise ValueError(f"{arguments.command} got the size {size}; {needs}")
    return [Draw(size, dtype) for size in found for dtype in arguments.dtypes or ["float32"]]


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
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # no error if a pipe's reader stops early
    sys.exit(main())
