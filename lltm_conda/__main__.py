"""`python -m lltm_conda`: what is installed here, what fits, what was chosen, and does it compute?

Judges without loading anything; the live run happens in a process of its own, so that this report
survives whatever happens there. Works where `import lltm_conda` fails.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ._version import __version__
from .engine import loader
from .engine.compat import KernelsName, VariantName, judge_file, probe_runtime, render, select
from .engine.compat.explain import describe_copy, explain, installed_copies
from .engine.compat.package_files import find_binaries
from .engine.compat.package_probe import package_problems
from .engine.compat.records import Finding, NameFormatError, Runtime, Verdict, as_plain, file_name
from .engine.compat.selection import Selection
from .engine.compat.text import printable

JSON_SCHEMA = 1
_SMOKE_SECONDS = 600


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code: 0 when the op works here, else 1 (2: bad usage)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may hold any byte
    if arguments[:1] == ["build"]:
        from .engine.local_build import main as build

        return build(arguments[1:])
    options = _parser().parse_args(arguments)
    runtime = probe_runtime(options.torch, package_version=__version__)
    if options.binary is not None:
        return _binary(options, runtime)
    if options.explain is not None:
        return _explain(options, runtime)
    return _report(options, runtime)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lltm_conda",
        description="Say whether lltm works in this environment, and if not, why and what to do.",
        epilog="python -m lltm_conda build: compile the variant that fits this torch "
        "(see python -m lltm_conda build --help).",
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON (docs/compat.md)")
    parser.add_argument(
        "--torch", metavar="PATH", help="judge against another torch or environment"
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--binary", metavar="FILE", help="judge any shared object, of any package")
    group.add_argument("--explain", metavar="VARIANT", help="every dimension of one variant")
    parser.add_argument("--version", action="version", version=f"lltm {__version__}")
    return parser


def _select(runtime: Runtime, forced: str | None) -> tuple[Selection, list[Path], Finding | None]:
    paths, distrusted = find_binaries(loader.PACKAGE, runtime.torch, __version__)
    return select(paths, runtime, judge_file, forced=forced, exhaustive=True), paths, distrusted


def _report(options: argparse.Namespace, runtime: Runtime) -> int:
    forced = os.environ.get("LLTM_CONDA_VARIANT") or None
    try:
        selection, paths, distrusted = _select(runtime, forced)
    except NameFormatError as error:
        print(f"LLTM_CONDA_VARIANT: {error}", file=sys.stderr)
        return 2
    cause = None
    if not selection.complete:
        cause = explain(selection, runtime, paths, loader.PACKAGE, distrusted)
    smoke: dict[str, Any] | None = None
    if cause is None and options.torch is None:
        smoke = _smoke()
    works = cause is None and (smoke is None or _smoke_ok(smoke))
    copies = installed_copies(loader.PACKAGE)
    problems = [render.shorten(text) for text in package_problems(loader.PACKAGE)]
    if options.json:
        _print_json(
            package={"name": "lltm", "version": __version__, "problems": problems},
            runtime=plain(runtime),
            binaries=[_plain_verdict(verdict) for verdict in selection.considered],
            chosen=selection.variant,
            cause=plain(cause),
            other_copies=[render.shorten(str(path)) for path in copies],
            build_cache=plain(distrusted),
            smoke=smoke,
            works=works,
        )
        return 0 if works else 1
    print(f"lltm {__version__}\n")
    print(render.runtime_table(runtime))
    if selection.considered:
        print("\n" + render.selection_table(selection))
    for problem in problems:
        print(f"\npackage files: {problem}")
    for path in copies:
        print(f"\n{render.shorten(describe_copy(path, loader.PACKAGE))}")
    if distrusted:
        print(f"\n{render.cause_text(distrusted)}")
    print(f"\nchosen: {selection.variant or 'nothing fits'}" + (" (forced)" if forced else ""))
    if cause is not None:
        print("\n" + render.cause_text(cause))
    if smoke is not None:
        print("\n" + _smoke_text(smoke))
    print(f"\n{'lltm works here' if works else 'lltm does not work here'}")
    return 0 if works else 1


def _smoke() -> dict[str, Any]:
    """Run `lltm_conda.smoke` in a process of its own."""
    environment = dict(os.environ, LLTM_CONDA_LOAD="0")
    parent = str(Path(__file__).resolve().parents[1])
    # This package first, whatever else the path holds.
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, (parent, os.environ.get("PYTHONPATH", "")))
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from lltm_conda import smoke; import json, sys;"
             "result = smoke.run(); sys.stdout.write('\\n' + json.dumps(result))"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SMOKE_SECONDS,
            env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return _crash(f"the live run did not end within {_SMOKE_SECONDS} s")
    if done.returncode == 0:
        with suppress(ValueError):
            result: dict[str, Any] = json.loads(done.stdout.rpartition("\n")[2])
            return result
    tail = " | ".join(done.stderr.strip().splitlines()[-3:])
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return _crash(f"the live run ended with {how}: {tail}")


def _crash(text: str) -> dict[str, Any]:
    return {"variant": None, "error": text, "devices": []}


def _smoke_ok(smoke: dict[str, Any]) -> bool:
    return smoke["error"] is None and all(device["ok"] for device in smoke["devices"])


def _smoke_text(smoke: dict[str, Any]) -> str:
    if smoke["error"] is not None:
        return render.shorten(f"live run failed: {smoke['error']}")
    rows = []
    for device in smoke["devices"]:
        measured = ", ".join(f"{name} {diff:.1e}" for name, diff in device["differences"].items())
        text = f"relative difference from the reference: {measured}" if device["ok"] else ""
        rows.append((device["device"], "ok" if device["ok"] else "NO", text or device["error"]))
    return render.table(("live run", "", "forward and backward"), rows)


def _binary(options: argparse.Namespace, runtime: Runtime) -> int:
    path = Path(options.binary)
    # A file of another package carries no version that must agree with ours.
    verdict = judge_file(path, runtime._replace(package_version=""))
    _print_verdicts(options, [verdict])
    return 0 if verdict.accepted else 1


def _explain(options: argparse.Namespace, runtime: Runtime) -> int:
    try:
        wanted = VariantName.parse(options.explain)
        selection, paths, _ = _select(runtime, options.explain)
    except NameFormatError as error:
        print(error, file=sys.stderr)
        return 2
    names = [file_name(wanted.glue), file_name(KernelsName()), file_name(wanted.kernels)]
    verdicts = [verdict for verdict in selection.considered if verdict.binary.path.name in names]
    there = {verdict.binary.path.name for verdict in verdicts}
    absent = [name for name in dict.fromkeys(names) if name not in there]
    _print_verdicts(options, verdicts)
    if absent and not options.json:
        have = ", ".join(printable(path.name) for path in paths) or "nothing"
        print(f"\nnot installed: {', '.join(absent)} (installed: {have})")
    return 0 if not absent and all(verdict.accepted for verdict in verdicts) else 1


def _print_verdicts(options: argparse.Namespace, verdicts: list[Verdict]) -> None:
    if options.json:
        _print_json(binaries=[_plain_verdict(verdict) for verdict in verdicts])
    else:
        print("\n\n".join(render.verdict_text(verdict) for verdict in verdicts))


def _print_json(**fields: Any) -> None:
    print(json.dumps({"schema": JSON_SCHEMA, **fields}, indent=2))


def plain(value: Any) -> Any:
    """A record as JSON-ready data, with private folders shortened."""
    value = as_plain(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return render.shorten(value) if isinstance(value, str) else value


def _plain_verdict(verdict: Verdict) -> dict[str, Any]:
    binary = verdict.binary
    return {
        "path": render.shorten(str(binary.path)),
        "kind": binary.kind,
        "name": binary.name,
        "accepted": verdict.accepted,
        "record": json.loads(binary.record.text) if binary.record else None,
        "layout": plain(dict(binary.layout)) if binary.layout else None,
        "cuda_archs": list(binary.cuda_archs),
        "findings": [plain(finding) for finding in verdict.findings],
    }


if __name__ == "__main__":
    sys.exit(main())
