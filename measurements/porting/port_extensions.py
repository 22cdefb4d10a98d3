"""Measures a port of a public extension to torchship: what changed, and whether it works.

    python -m measurements.porting.port_extensions NAME --upstream DIR --port DIR \
        --revision COMMIT --tests FILE ... [--python PYTHON ...] [--cuda]

UPSTREAM is the extension as published, PORT the same after the page docs/ship/migrating.md. Neither
is part of this repository. For each PYTHON, an interpreter with torch, pytest and torchship's
build requirements, the port's wheel is built, installed into a folder of its own and imported, and
upstream's tests run against it. Writes measurements/results/ports.json, and the table of the page.

With --cuda, the wheel has the CUDA code, and the tests run only if there is a GPU. Where the GPU is
in another machine, that one writes its runs to a file, and this one reads them:

    python -m measurements.porting.port_extensions NAME --port DIR --tests FILE ... --cuda \
        --python PYTHON --write-runs RUNS
    python -m measurements.porting.port_extensions NAME --read-runs RUNS
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from measurements import storage
from torchship.project.finish import file_names

RESULT = storage.RESULTS / "ports.json"
PAGE = Path(__file__).parents[2] / "docs/ship/migrating.md"
REPO = Path(__file__).parents[2]
NATIVE = (".cpp", ".cc", ".cxx", ".cu", ".cuh", ".h", ".hpp")
_IS_BUILT = re.compile(r"__pycache__|\.egg-info/|\.so$|\.pyc$")
DESCRIBED = ("build_matrix.yaml", "pyproject.toml")


@dataclass(frozen=True)
class Run:
    """The port beside one torch."""

    torch: str
    build_seconds: float
    passed: int
    skipped: int
    failed: int
    gpu: str = ""  #: its name; "" if the wheel was built without CUDA code, or there is no GPU
    is_import_only: bool = False  #: as the tests need a GPU, and there was none


@dataclass(frozen=True)
class Lines:
    """Lines that were added and removed."""

    added: int = 0
    removed: int = 0
    files: int = 0


@dataclass(frozen=True)
class Port:
    """What one port took, in lines and in seconds."""

    name: str
    revision: str
    native: Lines  #: of C++ and CUDA
    python: Lines  #: of the package's own files
    deleted: Lines  #: files that pyproject.toml replaces
    described: Lines  #: what `torchship init` wrote
    described_by_hand: Lines  #: what the author changed in that
    generated: Lines  #: what `torchship init --finish` wrote
    init_seconds: float
    runs: list[Run] = field(default_factory=list)


def changes(before: Path, after: Path) -> dict[str, tuple[int, int, bool]]:
    """Added and removed lines by file, and whether the file is gone."""
    result = {}
    for name in sorted({*_texts(before), *_texts(after)}):
        old = _lines(before / name)
        new = _lines(after / name)
        marks = [line[0] for line in difflib.unified_diff(old, new, n=0) if line[:2] != "@@"]
        # The first two lines of a difference name the files.
        added = marks[2:].count("+")
        removed = marks[2:].count("-")
        if added or removed:
            result[name] = (added, removed, not (after / name).exists())
    return result


def _texts(root: Path) -> set[str]:
    """The files below a folder, without what a build or git has put there."""
    names = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {
        str(name)
        for name in names
        if name.parts[0] not in ("build", ".git") and not _IS_BUILT.search(str(name))
    }


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def total(entries: Iterator[tuple[int, int, bool]]) -> Lines:
    listed = list(entries)
    return Lines(
        added=sum(added for added, _, _ in listed),
        removed=sum(removed for _, removed, _ in listed),
        files=len(listed),
    )


def measure(options: argparse.Namespace) -> Port:
    port = options.port.resolve()
    upstream = options.upstream.resolve()
    changed = changes(upstream, port)
    package = next(port.glob("*/_project.py")).parent.name
    generated = {*file_names(package)}
    hand = {name for name in changed if name not in (*generated, *DESCRIBED)}
    with tempfile.TemporaryDirectory() as folder:
        described = Path(folder, "described")
        subprocess.run(["cp", "-r", str(upstream), str(described)], check=True)
        # The author's own pyproject.toml is replaced by what init would write.
        (described / "pyproject.toml").unlink(missing_ok=True)
        before = time.perf_counter()
        torchship("init", cwd=described)
        seconds = time.perf_counter() - before
        by_hand = changes(described, port)
        wrote = changes(upstream, described)
    return Port(
        name=options.name,
        revision=options.revision,
        native=total(changed[name] for name in sorted(hand) if name.endswith(NATIVE)),
        python=total(
            changed[name]
            for name in sorted(hand)
            if not name.endswith(NATIVE) and not changed[name][2]
        ),
        deleted=total(changed[name] for name in sorted(hand) if changed[name][2]),
        described=total(wrote[name] for name in DESCRIBED if name in wrote),
        described_by_hand=total(by_hand[name] for name in DESCRIBED if name in by_hand),
        generated=total(changed[name] for name in sorted(generated) if name in changed),
        init_seconds=seconds,
        runs=make_runs(options),
    )


def make_runs(options: argparse.Namespace) -> list[Run]:
    port = options.port.resolve()
    return [
        run_beside(python, port, options.tests, workers=options.workers, with_cuda=options.cuda)
        for python in options.python
    ]


def torchship(*arguments: str, cwd: Path) -> None:
    code = "import sys; from torchship.command import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *arguments]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPO)}
    subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True)


def run_beside(
    python: str, port: Path, tests: Sequence[str], *, workers: int, with_cuda: bool
) -> Run:
    """Builds the wheel for the torch of an interpreter, and runs the tests against it there."""
    torch, gpu = facts_of(python)
    if not with_cuda:
        gpu = ""
    is_import_only = with_cuda and not gpu
    package = next(port.glob("*/_project.py")).parent.name
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder, "site")
        before = time.perf_counter()
        pip = [python, "-m", "pip", "-q"]
        build = [*pip, "wheel", "--no-build-isolation", "--no-deps", str(port), "-w", folder]
        building = environment_of(python, REPO) | {"FORCE_CUDA": str(int(with_cuda))}
        subprocess.run(build, env=building, check=True)
        seconds = time.perf_counter() - before
        (wheel,) = Path(folder).glob("*.whl")
        install = [*pip, "install", "--no-deps", "--target", str(site), str(wheel)]
        subprocess.run(install, check=True)
        env = environment_of(python, site)
        subprocess.run([python, "-c", f"import {package}"], env=env, cwd=folder, check=True)
        output = ""
        if tests and not is_import_only:
            command = [python, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider"]
            command += ["-n", str(workers)] if workers > 1 else []
            paths = [str(port / test) for test in tests]
            process = subprocess.run(
                [*command, "--rootdir", folder, *paths],
                env=env,
                cwd=folder,
                capture_output=True,
                text=True,
            )
            output = process.stdout
            print(output[-4000:], process.stderr[-2000:])
            if process.returncode not in (0, 1):
                raise SystemExit(
                    f"the tests did not come to an end: exit code {process.returncode}; the end "
                    "of their output is above"
                )
    counts = {
        word: int(number)
        for number, word in re.findall(r"(\d+) (passed|skipped|failed|error)", output)
    }
    return Run(
        torch=torch,
        build_seconds=seconds,
        passed=counts.get("passed", 0),
        skipped=counts.get("skipped", 0),
        failed=counts.get("failed", 0) + counts.get("error", 0),
        gpu=gpu,
        is_import_only=is_import_only,
    )


def facts_of(python: str) -> tuple[str, str]:
    """The version of an interpreter's torch, and the name of the GPU that it can use, or ""."""
    code = (
        "import torch; print(torch.__version__); "
        "print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    )
    output = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    torch, gpu = output.splitlines()
    return torch, gpu


def environment_of(python: str, path: Path) -> dict[str, str]:
    """This process's environment, in which Python finds the packages in `path`."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    programs = f"{Path(python).parent}{os.pathsep}{own.get('PATH', '')}"
    return own | {"PATH": programs, "PYTHONPATH": str(path)}


def table(ports: list[Port]) -> Iterator[str]:
    titles = (
        "extension",
        "C++ and CUDA",
        "Python",
        "matrix and pyproject.toml",
        "to a wheel",
        "upstream's tests",
    )
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for port in ports:
        described = f"{port.described.added} written, {_touched(port.described_by_hand)} by hand"
        builds = ", ".join(f"{run.build_seconds:.0f} s ({run.torch})" for run in port.runs)
        tests = "; ".join(_result(run) for run in port.runs)
        yield (
            f"| {port.name} | {_touched(port.native)} | {_touched(port.python)} | {described} | "
            f"{builds} | {tests} |"
        )


def _touched(lines: Lines) -> str:
    if not lines.files:
        return "none"
    files = "1 file" if lines.files == 1 else f"{lines.files} files"
    return f"+{lines.added} -{lines.removed} in {files}"


def _result(run: Run) -> str:
    if run.is_import_only:
        return "imported, no GPU"
    skipped = f", {run.skipped} skipped" if run.skipped else ""
    failed = f", {run.failed} failed" if run.failed else ""
    place = f" on an {run.gpu}" if run.gpu else ""
    return f"{run.passed} passed{skipped}{failed}{place}"


def load() -> list[Port]:
    stored = storage.load(RESULT) if RESULT.exists() else []
    assert isinstance(stored, list)
    return [
        Port(
            name=record["name"],
            revision=record["revision"],
            native=Lines(**record["native"]),
            python=Lines(**record["python"]),
            deleted=Lines(**record["deleted"]),
            described=Lines(**record["described"]),
            described_by_hand=Lines(**record["described_by_hand"]),
            generated=Lines(**record["generated"]),
            init_seconds=record["init_seconds"],
            runs=[Run(**run) for run in record["runs"]],
        )
        for record in stored
    ]


def drawn(page: str, ports: list[Port]) -> str:
    """The page with the table of the ports between its marks."""
    begin = "<!-- migrations:begin -->\n"
    end = "<!-- migrations:end -->\n"
    before, _, rest = page.partition(begin)
    after = rest.partition(end)[2]
    return before + begin + "\n".join(table(ports)) + "\n" + end + after


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("name", help="of the extension; without --port, only the table is written again")
    add("--upstream", type=Path, help="its folder as published")
    add("--port", type=Path, help="its folder after the port")
    add("--revision", default="", help="the commit of UPSTREAM")
    add("--tests", nargs="*", default=[], help="files of upstream's tests, in PORT")
    add("--python", nargs="*", default=[], help="interpreters to build for and to run the tests")
    add("--cuda", action="store_true", help="build with CUDA; run the tests only if there is a GPU")
    add("--workers", type=int, default=1, help="processes of pytest-xdist for the tests")
    add("--write-runs", type=Path, metavar="FILE", help="write the runs alone, to this file")
    add("--read-runs", type=Path, metavar="FILE", help="add the runs in this file")
    return parser


def with_runs(ports: list[Port], name: str, added: list[Run]) -> list[Port]:
    """The ports, of which that of this name has the added runs, for the same torch once each."""
    (port,) = (port for port in ports if port.name == name)
    replaced = {(run.torch, run.gpu) for run in added}
    kept = [run for run in port.runs if (run.torch, run.gpu) not in replaced]
    runs = sorted([*kept, *added], key=lambda run: [int(part) for part in _numbers(run.torch)])
    return [replace(port, runs=runs) if each is port else each for each in ports]


def _numbers(version: str) -> list[str]:
    return version.partition("+")[0].split(".")


def main() -> None:
    options = make_parser().parse_args()
    if options.write_runs is not None:
        runs = make_runs(options)
        storage.save([asdict(run) for run in runs], options.write_runs)
        return
    ports = load()
    if options.port is not None:
        others = [port for port in ports if port.name != options.name]
        ports = sorted([*others, measure(options)], key=lambda port: port.name)
    if options.read_runs is not None:
        runs = [Run(**run) for run in json.loads(options.read_runs.read_text(encoding="utf-8"))]
        ports = with_runs(ports, options.name, runs)
    storage.save([asdict(port) for port in ports], RESULT)
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8"), ports), encoding="utf-8")


if __name__ == "__main__":
    main()
