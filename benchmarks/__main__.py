"""``python -m benchmarks``: measure, show, compare with the targets, draw."""

import argparse
import shlex
import signal
import sys
from pathlib import Path

from rich.console import Console

from . import report, schema, session, sizes, speed_page, targets
from .compare import OURS
from .contender import DTYPES
from .schema import Size
from .settings import Settings
from .sizes import Draw
from .timing import PROTOCOLS

Parsers = list[argparse.ArgumentParser]


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    stored = argparse.ArgumentParser(add_help=False)
    help_of_json = "store the results; a name that ends in .xz means a packed file"
    stored.add_argument("--json", type=Path, metavar="FILE", help=help_of_json)
    measuring = _measuring(parents=[stored])
    shared = _shared(parents=[measuring])

    cell = commands.add_parser("cell", parents=[shared], help="one step")
    cell.add_argument("--protocol", choices=(*PROTOCOLS, "memory", "kernels"))
    cell.set_defaults(what="cell")

    layer = commands.add_parser("layer", parents=[shared], help="whole sequences")
    layer.add_argument("--protocol", choices=("split", "stream", "graph"))
    layer.set_defaults(what="layer")

    grid = commands.add_parser("grid", parents=[shared], help="the fixed grid, with results")
    grid.add_argument("what", nargs="?", choices=("cell", "layer"), default="cell")
    grid.set_defaults(protocol=None)

    drawn = commands.add_parser("random", parents=[measuring], help="random layers or steps")
    drawn.set_defaults(protocol=None)
    add = drawn.add_argument
    add("--what", choices=tuple(session.PEERS), default="layer")
    add("--count", type=int, default=300, help="the number of draws (default 300)")
    add("--again", type=int, default=3, help="repeats of a draw where ours is slower (default 3)")
    add("--dtype", nargs="+", choices=tuple(DTYPES), dest="dtypes", help="of --sizes, or of draws")

    imported = commands.add_parser("import", parents=[stored], help="the time of the import")
    imported.add_argument("--rounds", type=int, default=20)

    show = commands.add_parser("show", help="print stored results")
    compare = commands.add_parser("targets", help="compare stored results with the targets")
    for command in (show, compare):
        command.add_argument("files", nargs="+", type=Path)
    commands.add_parser("speed-page", help="write the docs' table from the stored results")
    return top


def _measuring(parents: Parsers) -> argparse.ArgumentParser:
    """The options of every command that measures contenders."""
    options = argparse.ArgumentParser(add_help=False, parents=parents)
    add = options.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--threads", type=int, default=1, metavar="N", help="torch's threads (default 1)")
    add("--contenders", nargs="+", default=[], metavar="NAME", help="measure only these")
    add("--sizes", nargs="+", metavar="B,I,S[,T]", help="measure only these; T for a layer")
    add("--seconds", type=float, default=1.0, help="per contender and size (default 1)")
    add("--rounds", type=int, default=15, help="interleaved rounds (default 15)")
    add("--deadline", type=float, metavar="S", help="begin no further size after S seconds")
    add("--seed", type=int, default=0)
    return options


def _shared(parents: Parsers) -> argparse.ArgumentParser:
    """The options of the commands whose sizes are fixed."""
    options = argparse.ArgumentParser(add_help=False, parents=parents)
    kinds = tuple(name for name in DTYPES if name != "tf32")
    options.add_argument("--dtype", nargs="+", default=["float32"], choices=kinds, dest="dtypes")
    help_of_tf32 = "set torch's tf32 flags of GEMMs (off by default) and of cuDNN (on by default)"
    options.add_argument("--tf32", choices=("on", "off"), help=help_of_tf32)
    return options


def command_line(argv: list[str]) -> str:
    """The command as the result file states it: without the folder of the path after ``--json``."""
    pairs = zip(["", *argv], argv, strict=False)
    masked = [Path(word).name if before == "--json" else word for before, word in pairs]
    return shlex.join(["python", "-m", "benchmarks", *masked])


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        if "json" not in arguments:  # the command makes no report
            _show(arguments, console)
            return 0
        measured = _measure(arguments, command_line(argv))
        report.show(measured, console)
        is_wrong = any(skip.reason.startswith(session.WRONG) for skip in measured.skipped)
        return 1 if is_wrong or not measured.results else 0
    except (ValueError, OSError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def _measure(arguments: argparse.Namespace, shown_command: str) -> schema.Report:
    if arguments.command == "import":
        return session.run_import(
            Settings(
                command="import",
                command_line=shown_command,
                device="cpu",
                protocol="fresh process",
                rounds=arguments.rounds,
                output=arguments.json,
            )
        )
    settings = settings_of(arguments, shown_command)
    if not settings.is_random and arguments.tf32:
        session.set_tf32(allowed=arguments.tf32 == "on")
    measured = session.new_report(settings)
    session.run(measured, _draws(arguments), settings)
    return measured


def settings_of(arguments: argparse.Namespace, shown_command: str) -> Settings:
    """The settings of a command that measures contenders."""
    is_random = arguments.command == "random"
    contenders = tuple(arguments.contenders)
    if is_random and not contenders:
        contenders = (session.PEERS[arguments.what], OURS)
    return Settings(
        command=arguments.command,
        command_line=shown_command,
        device=arguments.device,
        protocol=_protocol(arguments),
        threads=arguments.threads,
        contenders=contenders,
        seconds=arguments.seconds,
        rounds=arguments.rounds,
        deadline=arguments.deadline,
        seed=arguments.seed,
        again=arguments.again if is_random else 0,
        output=arguments.json,
    )


def _protocol(arguments: argparse.Namespace) -> str:
    """The protocol of the command line, or the command's own."""
    is_layer = arguments.what == "layer"
    if is_layer and arguments.protocol == "tutorial":
        raise ValueError("the tutorial protocol is for one step: use split or stream for a layer")
    if arguments.protocol:
        return str(arguments.protocol)
    if arguments.command == "random":
        return "stream" if is_layer and arguments.device == "cuda" else "split"
    return "split" if is_layer else "tutorial"


def _draws(arguments: argparse.Namespace) -> list[Draw]:
    """The pairs of size and dtype to measure; without `--sizes`, the command chooses the sizes."""
    is_layer = arguments.what == "layer"
    if arguments.sizes:
        chosen = [Size.parse(numbers) for numbers in arguments.sizes]
    elif arguments.command == "random":
        drawn = sizes.draw(arguments.what, arguments.seed, arguments.count, arguments.device)
        return [draw for draw in drawn if draw.dtype in (arguments.dtypes or DTYPES)]
    elif arguments.command == "grid":
        chosen = sizes.layer_grid() if is_layer else sizes.cell_grid()
    else:
        chosen = list(sizes.DEFAULTS[arguments.what, arguments.device])
    for size in chosen:
        if is_layer != (size.steps > 1):
            needs = "a layer needs B,I,S,T with T > 1" if is_layer else "a step needs B,I,S"
            raise ValueError(f"{arguments.command} got the size {size}; {needs}")
    return [Draw(size, dtype) for size in chosen for dtype in arguments.dtypes or ["float32"]]


def _show(arguments: argparse.Namespace, console: Console) -> None:
    if arguments.command == "speed-page":
        speed_page.write_page()
        console.print(f"wrote {speed_page.PAGE}", highlight=False)
    elif arguments.command == "show":
        for path in arguments.files:
            report.show(schema.read(path), console)
    else:
        console.print(targets.table([schema.read(path) for path in arguments.files]))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # no error if a pipe's reader stops early
    sys.exit(main())
