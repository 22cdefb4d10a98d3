"""`python -m PACKAGE`: reports which binaries fit here, and whether the op computes correctly.

This process judges the binaries and loads none, so the report works where the package's import
fails. The op runs in a process of its own, which may crash without ending this one.
"""

import argparse
import io
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..doctor import KernelsName, VariantName, judge_file, probe_runtime, render, select
from ..doctor.cache import find_binaries
from ..doctor.explain import describe_copy, explain, installed_copies, package_problems
from ..doctor.project import Project
from ..doctor.records import Finding, NameFormatError, Runtime, Verdict, file_name
from ..doctor.selection import Selection
from ..doctor.text import printable

_SMOKE_SECONDS = 600


def main(project: Project, arguments: list[str] | None = None) -> int:
    """Runs a (sub)command; returns the exit code: 2 for bad usage, 1 for a failure, else 0."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may not be UTF-8
    if arguments[:1] == ["build"]:
        from .local_build import main as build

        return build(project, arguments[1:])
    if arguments[:1] == ["doctor"]:
        from ..doctor.environment import main as doctor

        return doctor(project, arguments[1:])
    options = _parser(project).parse_args(arguments)
    runtime = probe_runtime(options.torch, project=project)
    if options.binary is not None:
        # FILE may belong to another package, so do not compare its version with ours.
        verdict = judge_file(Path(options.binary), runtime._replace(package_version=""))
        _print_verdicts(options, [verdict])
        return 0 if verdict.accepted else 1
    if options.explain is not None:
        return _explain(options, runtime)
    return _report(options, runtime)


def _parser(project: Project) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=project.command,
        description=f"Say whether {project.distribution} works in this environment, and if not, "
        "why and what to do.",
        epilog=f"{project.command} build: compile the variant that fits this torch. "
        f"{project.command} doctor: judge the torch extensions of every package here. "
        "Both have a --help of their own.",
    )
    add = parser.add_argument
    add("--json", action="store_true", help="print the report as JSON (docs/fails/compat.md)")
    add("--torch", metavar="PATH", help="judge against another torch or environment")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--binary", metavar="FILE", help="judge any shared object, of any package")
    group.add_argument("--explain", metavar="VARIANT", help="print every finding of one variant")
    add("--version", action="version", version=f"{project.distribution} {project.version}")
    return parser


def _select(runtime: Runtime, forced: str | None) -> tuple[Selection, list[Path], Finding | None]:
    paths, distrusted = find_binaries(runtime.project, runtime.torch)
    return select(paths, runtime, judge_file, forced=forced, exhaustive=True), paths, distrusted


def _report(options: argparse.Namespace, runtime: Runtime) -> int:
    project = runtime.project
    name, variable = project.distribution, project.variable("VARIANT")
    forced = os.environ.get(variable) or None
    try:
        selection, paths, distrusted = _select(runtime, forced)
    except NameFormatError as error:
        print(f"{variable}: {error}", file=sys.stderr)
        return 2
    cause = None if selection.complete else explain(selection, runtime, paths, distrusted)
    smoke = _smoke(project) if cause is None and options.torch is None else None
    ran_well = smoke is None or (not smoke["error"] and all(d["ok"] for d in smoke["devices"]))
    works = cause is None and ran_well
    copies = installed_copies(project.folder)
    problems = package_problems(project)
    if options.json:
        render.print_json(
            package={"name": name, "version": project.version, "problems": problems},
            runtime={k: v for k, v in runtime._asdict().items() if k != "project"},
            binaries=[_plain_verdict(verdict) for verdict in selection.considered],
            chosen=selection.variant,
            cause=cause,
            other_copies=copies,
            build_cache=distrusted,
            smoke=smoke,
            works=works,
        )
        return 0 if works else 1
    print(f"{name} {project.version}\n")
    print(render.runtime_table(runtime))
    if selection.considered:
        print("\n" + render.selection_table(selection))
    for problem in problems:
        print(f"\npackage files: {render.shorten(problem)}")
    for path in copies if paths else ():  # without binaries here, the cause names the copies
        print(f"\n{render.shorten(describe_copy(path, project.folder))}")
    if distrusted:
        print(f"\n{render.cause_text(distrusted)}")
    print(f"\nchosen: {selection.variant or 'nothing fits'}" + (" (forced)" if forced else ""))
    if cause is not None:
        print("\n" + render.cause_text(cause))
    if smoke is not None:
        print("\n" + _smoke_text(smoke))
    print(f"\n{name} {'works here' if works else 'does not work here'}")
    return 0 if works else 1


def _smoke(project: Project) -> dict[str, Any]:
    """Runs `PACKAGE.smoke` in a process of its own."""
    # `code` puts this package first on sys.path; PYTHONPATH cannot name a path with a colon.
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]);"
        f"from {project.package} import smoke; result = smoke.run();"
        "sys.stdout.write('\\n' + json.dumps(result))"
    )
    command = [sys.executable, "-c", code, str(project.folder.resolve().parent)]
    env = {**os.environ, project.variable("LOAD"): "0"}
    options: dict[str, Any] = {"text": True, "errors": "replace", "timeout": _SMOKE_SECONDS}
    crash: dict[str, Any] = {"variant": None, "devices": []}
    try:
        done = subprocess.run(command, capture_output=True, env=env, **options)
    except subprocess.TimeoutExpired:
        return {**crash, "error": f"the live run took longer than {_SMOKE_SECONDS} s"}
    if done.returncode == 0:
        with suppress(ValueError):
            return json.loads(done.stdout.rpartition("\n")[2])  # type: ignore[no-any-return]
    tail = " | ".join(done.stderr.strip().splitlines()[-3:])
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return {**crash, "error": f"the live run ended with {how}: {tail}"}


def _smoke_text(smoke: dict[str, Any]) -> str:
    if smoke["error"] is not None:
        return render.shorten(f"live run failed: {smoke['error']}")
    rows = []
    for device in smoke["devices"]:
        measured = ", ".join(f"{name} {diff:.1e}" for name, diff in device["differences"].items())
        well = "ok", f"relative difference from the reference: {measured}"
        rows.append((device["device"], *(well if device["ok"] else ("NO", device["error"]))))
    return render.table(("live run", "", "forward and backward"), rows)


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
        render.print_json(binaries=[_plain_verdict(verdict) for verdict in verdicts])
    else:
        print("\n\n".join(render.verdict_text(verdict) for verdict in verdicts))


def _plain_verdict(verdict: Verdict) -> dict[str, Any]:
    binary = verdict.binary
    return {
        "path": binary.path,
        "kind": binary.kind,
        "name": binary.name,
        "accepted": verdict.accepted,
        "record": json.loads(binary.record.text) if binary.record else None,
        "layout": binary.layout or None,
        "cuda_archs": binary.cuda_archs,
        "findings": verdict.findings,
    }
