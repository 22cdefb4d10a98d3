"""``python -m benchmarks``: measure, show, draw."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from rich.console import Console

from .floor import forward_flops
from .schema import Size

CELL_SIZES = {
    "cpu": ("16,32,128", "256,512,1024"),
    "cuda": ("16,32,128", "64,512,1024", "256,1024,2048"),
}
KERNEL_SIZES = ("16,32,128", "4096,1024,4096")
LAYER_SIZES = {
    "cpu": ("16,32,128,100",),
    "cuda": ("16,128,128,256", "16,512,512,256", "64,1024,1024,256", "128,2048,2048,256"),
}
GRID_BATCHES = (1, 16, 64, 256, 1024)
GRID_STATES = (16, 128, 512, 2048)
LAYER_GRID_BATCHES = (1, 16, 64, 256)
LAYER_GRID_STATES = (64, 128, 256, 512, 1024, 2048)
LAYER_GRID_STEPS = (16, 256, 2048)


def grid_sizes(what: str = "cell") -> list[Size]:
    """The fixed grid, in the order in which a deadline should cut it off.

    Of the cell small first. Of the layer short sequences first, and among these the corners.
    """
    if what == "cell":
        cells = [Size(b, s // 4, s) for s in GRID_STATES for b in GRID_BATCHES]
        return sorted(cells, key=forward_flops)
    sizes = [
        Size(b, s, s, t)
        for t in LAYER_GRID_STEPS
        for s in LAYER_GRID_STATES
        for b in LAYER_GRID_BATCHES
    ]

    def is_corner(size: Size) -> bool:
        ends = (LAYER_GRID_BATCHES, size.batch), (LAYER_GRID_STATES, size.state)
        return all(value in (among[0], among[-1]) for among, value in ends)

    return sorted(sizes, key=lambda size: (size.steps, not is_corner(size), forward_flops(size)))


def size(text: str) -> Size:
    """An argparse type; its message is the one the user sees."""
    try:
        return Size.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)

    measuring = argparse.ArgumentParser(add_help=False)
    add = measuring.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--threads", type=int, default=1, metavar="N", help="torch's threads (default 1)")
    add(
        "--dtype",
        nargs="+",
        default=["float32"],
        choices=("float32", "float64", "float16", "bfloat16"),
    )
    add("--contenders", nargs="+", default=[], metavar="NAME", help="measure only these")
    add("--seconds", type=float, default=1.0, help="per contender and size (default 1)")
    add("--rounds", type=int, default=15, help="interleaved rounds (default 15)")
    add("--deadline", type=float, metavar="S", help="begin no further size after S seconds")
    add("--seed", type=int, default=0)
    add(
        "--tf32",
        choices=("on", "off"),
        help="both of torch's flags, for GEMMs and for cuDNN; torch's defaults differ: off and on",
    )

    stored = argparse.ArgumentParser(add_help=False)
    stored.add_argument("--json", type=Path, metavar="FILE", help="store the results")

    cell = commands.add_parser("cell", parents=[measuring, stored], help="one step")
    cell.add_argument("--sizes", nargs="+", type=size, metavar="B,I,S")
    cell.add_argument(
        "--protocol",
        choices=("tutorial", "split", "stream", "graph", "memory", "kernels"),
        default="tutorial",
    )
    layer = commands.add_parser("layer", parents=[measuring, stored], help="whole sequences")
    layer.add_argument("--sizes", nargs="+", type=size, metavar="B,I,S,T")
    layer.add_argument(
        "--protocol", choices=("split", "stream", "graph", "kernels"), default="split"
    )
    grid = commands.add_parser("grid", parents=[measuring, stored], help="the fixed grid, judged")
    grid.add_argument("what", nargs="?", choices=("cell", "layer"), default="cell")
    grid.add_argument(
        "--protocol",
        choices=("tutorial", "split", "stream"),
        help="default: tutorial; of a layer split",
    )

    imports = commands.add_parser(
        "import", parents=[stored], help="import lltm_conda, beside torch"
    )
    imports.add_argument("--rounds", type=int, default=20)
    judge = commands.add_parser("judge", parents=[stored], help="the compatibility checker")
    judge.add_argument("--rounds", type=int, default=20)

    overhead = commands.add_parser(
        "overhead", parents=[stored], help="the tutorial's protocol round steps that do nothing"
    )
    overhead.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    overhead.add_argument("--seconds", type=float, default=1.0, help="per step (default 1)")
    overhead.add_argument("--rounds", type=int, default=15)

    tutorial = commands.add_parser("tutorial", help="the tutorial's script and its line")
    tutorial.add_argument("implementation", choices=("python", "cpp", "cuda"))
    tutorial.add_argument("-b", "--batch-size", type=int, default=16)
    tutorial.add_argument("-f", "--features", type=int, default=32)
    tutorial.add_argument("-s", "--state-size", type=int, default=128)
    tutorial.add_argument("-r", "--runs", type=int, default=1000)
    tutorial.add_argument(
        "--baseline", action="store_true", help="the tutorial-style extension instead of ours"
    )

    floors = commands.add_parser("floor", help="operations, bytes and launches of a step")
    floors.add_argument("--sizes", nargs="+", type=size, metavar="B,I,S")
    floors.add_argument(
        "--dtype", choices=("float32", "float64", "float16", "bfloat16"), default="float32"
    )
    floors.add_argument("--ceilings", type=Path, metavar="FILE", help="of this stored run")

    show = commands.add_parser("show", help="print stored results")
    show.add_argument("files", nargs="+", type=Path)
    targets = commands.add_parser("targets", help="stored results against the project's targets")
    targets.add_argument("files", nargs="+", type=Path)
    commands.add_parser("readme", help="write README's table from the stored results")
    plot = commands.add_parser("plot", help="draw stored results")
    plot.add_argument("files", nargs="+", type=Path)
    plot.add_argument("--out", type=Path, metavar="DIR", help="default: beside each file")
    return top


def command_line(argv: list[str]) -> str:
    """The command as stored: what is measured, without the folders of the one who measured."""
    words, where = [], False
    for word in argv:
        words.append(Path(word).name if where else word)
        where = word == "--json"
    return shlex.join(["python", "-m", "benchmarks", *words])


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        return _dispatch(arguments, command_line(argv), console)
    except (ValueError, OSError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def _dispatch(arguments: argparse.Namespace, line: str, console: Console) -> int:
    command = arguments.command
    if command in ("cell", "layer", "grid"):
        return _measure(arguments, line, console)
    if command in ("import", "judge", "overhead"):
        from . import checker, imports, overhead, schema
        from .report import show

        if command == "overhead":
            report = overhead.measure(line, arguments.device, arguments.seconds, arguments.rounds)
        else:
            module = imports if command == "import" else checker
            report = module.measure(line, arguments.rounds)
        if arguments.json:
            schema.write(report, arguments.json)
        show(report, console)
        return 0 if report.results else 1
    if command == "tutorial":
        from .tutorial import run

        print(run(arguments))
        return 0
    if command == "floor":
        return _floor(arguments, console)
    if command == "readme":
        from .readme import write

        console.print(f"wrote {write()}", highlight=False)
        return 0
    return _files(arguments, console)


def _measure(arguments: argparse.Namespace, line: str, console: Console) -> int:
    from . import baselines
    from .report import show
    from .session import WRONG, Options, allow_tf32, new_report, run_sizes

    if arguments.tf32:
        allow_tf32(arguments.tf32 == "on")

    what = getattr(arguments, "what", arguments.command)
    default_protocol = "split" if what == "layer" else "tutorial"
    protocol = getattr(arguments, "protocol", None) or default_protocol
    if what == "layer" and protocol == "tutorial":
        raise ValueError(
            "the tutorial's protocol is for one step: take split or stream for a layer"
        )
    options = Options(
        device=arguments.device,
        dtypes=tuple(arguments.dtype),
        protocol=protocol,
        threads=arguments.threads,
        seconds=arguments.seconds,
        rounds=arguments.rounds,
        seed=arguments.seed,
        contenders=tuple(arguments.contenders),
        deadline=arguments.deadline,
        json=arguments.json,
        log=lambda text: console.print(text, style="dim", highlight=False),
    )
    if arguments.command == "grid":
        sizes = grid_sizes(what)
    elif arguments.sizes:
        sizes = arguments.sizes
    elif protocol == "kernels" and what == "cell":
        sizes = [Size.parse(text) for text in KERNEL_SIZES]
    else:
        defaults = LAYER_SIZES if what == "layer" else CELL_SIZES
        sizes = [Size.parse(text) for text in defaults[arguments.device]]
    is_layer = what == "layer"
    for each in sizes:
        if is_layer != (each.steps > 1):
            raise ValueError(
                f"{arguments.command} got the size {each}; "
                + ("layer needs B,I,S,T with T > 1" if is_layer else "a step needs B,I,S")
            )
    builders = baselines.layer_contenders() if is_layer else baselines.cell_contenders()
    report = run_sizes(new_report(arguments.command, line, options), sizes, builders, options)
    show(report, console)
    wrong = any(skip.reason.startswith(WRONG) for skip in report.skipped)
    return 1 if wrong or not report.results else 0


def _floor(arguments: argparse.Namespace, console: Console) -> int:
    from . import schema
    from .report import floor_table

    texts = dict.fromkeys((*CELL_SIZES["cpu"], *CELL_SIZES["cuda"], *KERNEL_SIZES))
    sizes = arguments.sizes or [Size.parse(text) for text in texts]
    stored = schema.read(arguments.ceilings).ceilings if arguments.ceilings else {}
    console.print(floor_table(sizes, arguments.dtype, stored))
    return 0


def _files(arguments: argparse.Namespace, console: Console) -> int:
    from . import schema

    reports = [(path, schema.read(path)) for path in arguments.files]
    if arguments.command == "show":
        from .report import show

        for _, report in reports:
            show(report, console)
    elif arguments.command == "targets":
        from .targets import table

        console.print(table([report for _, report in reports]))
    else:
        from .plot import draw

        for path, report in reports:
            for picture in draw(report, (arguments.out or path.parent) / path.stem):
                console.print(f"wrote {picture}", highlight=False)
    return 0


if __name__ == "__main__":
    # A program that reads the tables through `head` should not end in a traceback.
    try:
        sys.exit(main())
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
