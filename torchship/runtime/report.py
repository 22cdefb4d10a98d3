"""What `python -m PACKAGE` tells: which binaries fit here, and whether the op computes right.

This process judges the binaries and loads none, so the report works where the package's
import fails.
"""

import json
import os
import sys
from pathlib import Path

from ..judge import KernelsName, VariantName, judge_file, select
from ..judge.cache import find_binaries
from ..judge.project import Project, Record
from ..judge.records import Finding, NameFormatError, Runtime, Verdict, file_name
from ..judge.text import printable
from ..judge.verdict.explain import describe_copy, explain, installed_copies, package_problems
from ..judge.verdict.selection import Selection
from ..judge.words import render
from .live_process import has_passed, has_run_nowhere, live_run_text, run_in_process
from .live_run import LiveResult


class Report(Record, kw_only=True):
    """What was found out about the package in this environment."""

    runtime: Runtime
    selection: Selection
    paths: list[Path]  #: the shared objects that were judged
    cause: Finding | None  #: why no binaries can be loaded; None if some can
    distrusted: Finding | None  #: why the build cache was refused; None if it was not
    live: LiveResult | None  #: None if the op did not run
    problems: tuple[str, ...]  #: of the package's own files
    copies: list[Path]  #: other folders on the path that hold the package

    @property
    def project(self) -> Project:
        return self.runtime.project

    @property
    def works(self) -> bool:
        return self.cause is None and (self.live is None or has_passed(self.live))


def report(runtime: Runtime, *, run_op: bool, as_json: bool) -> int:
    """Prints the report; returns 0 if the op works, 1 if it does not, 2 for a malformed variant.

    With `run_op`, the op also runs, if its binaries can be loaded.
    """
    variable = runtime.project.variable("VARIANT")
    try:
        result = _examine(runtime, os.environ.get(variable) or None, run_op=run_op)
    except NameFormatError as error:
        print(f"{variable}: {error}", file=sys.stderr)
        return 2
    if as_json:
        _print_json(result)
    else:
        _print_text(result)
    return 0 if result.works else 1


def _examine(runtime: Runtime, forced: str | None, *, run_op: bool) -> Report:
    project = runtime.project
    paths, distrusted = find_binaries(project, runtime.torch)
    selection = select(paths, runtime, judge_file, forced=forced, exhaustive=True)
    cause = None if selection.complete else explain(selection, runtime, paths, distrusted)
    return Report(
        runtime=runtime,
        selection=selection,
        paths=paths,
        cause=cause,
        distrusted=distrusted,
        live=run_in_process(project) if cause is None and run_op else None,
        problems=package_problems(project, runtime.environment),
        copies=installed_copies(project.folder),
    )


def _print_json(result: Report) -> None:
    project = result.project
    runtime = result.runtime._asdict()
    for name in ("project", "target"):
        del runtime[name]
    render.print_json(
        package={
            "name": project.distribution,
            "version": project.version,
            "problems": result.problems,
        },
        runtime=runtime,
        binaries=[_plain_verdict(verdict) for verdict in result.selection.considered],
        chosen=result.selection.variant,
        cause=result.cause,
        other_copies=result.copies,
        build_cache=result.distrusted,
        smoke=result.live,
        works=result.works,
    )


def _print_text(result: Report) -> None:
    project = result.project
    selection = result.selection
    print(f"{project.distribution} {project.version}\n")
    print(render.runtime_table(result.runtime))
    if selection.considered:
        print("\n" + render.selection_table(selection))
    for problem in result.problems:
        print(f"\npackage files: {render.shorten(problem)}")
    if result.paths:  # without binaries, the cause names the copies
        for path in result.copies:
            print(f"\n{render.shorten(describe_copy(path, project.folder))}")
    if result.distrusted:
        print(f"\n{render.cause_text(result.distrusted)}")
    forced = " (forced)" if selection.forced else ""
    print(f"\nchosen: {selection.variant or 'nothing fits'}{forced}")
    if result.cause is not None:
        print("\n" + render.cause_text(result.cause))
    if result.live is not None:
        print("\n" + live_run_text(result.live))
    print(f"\n{project.distribution} {_verdict(result)}")


def _verdict(result: Report) -> str:
    if result.live is not None and has_run_nowhere(result.live):
        return "can be loaded here, but has no device to compute on"
    return "works here" if result.works else "does not work here"


def explain_variant(runtime: Runtime, name: str, *, as_json: bool) -> int:
    """Prints every finding of one variant; returns 0 if all its binaries are accepted, else 1.

    Returns 2 for a malformed name, and for a device for which the project has no kernels.
    """
    try:
        variant = VariantName.parse(name)
    except NameFormatError as error:
        print(error, file=sys.stderr)
        return 2
    project = runtime.project
    # The glue of operators without kernels has a variant for the CPU, which serves all devices.
    if variant.kernels.device_type not in _device_types(project):
        code = _describe_code(project)
        print(f"{project.distribution} has {code}: no variant is {name}", file=sys.stderr)
        return 2
    paths, _ = find_binaries(project, runtime.torch)
    selection = select(paths, runtime, judge_file, forced=name, exhaustive=True)
    glue = variant.glue
    if project.has_cuda_glue:
        glue = glue._replace(cuda_major=variant.kernels.cuda_major)
    needed_files = [
        file_name(glue),
        *(file_name(kernels) for kernels in _kernels_of(variant, project)),
    ]
    verdicts = [
        verdict for verdict in selection.considered if verdict.binary.path.name in needed_files
    ]
    judged_files = {verdict.binary.path.name for verdict in verdicts}
    absent = [file for file in needed_files if file not in judged_files]
    print_verdicts(verdicts, as_json=as_json)
    if absent and not as_json:
        installed = ", ".join(printable(path.name) for path in paths) or "nothing"
        print(f"\nnot installed: {', '.join(absent)} (installed: {installed})")
    return 0 if not absent and all(verdict.accepted for verdict in verdicts) else 1


def _device_types(project: Project) -> tuple[str, ...]:
    """The types of device for which the project has a variant."""
    # The glue of operators without kernels has a variant for the CPU, which serves all devices.
    without_kernels = ("cpu",) if project.has_cpu_glue else ()
    return (*(project.kernels or without_kernels), *(("cuda",) if project.has_cuda else ()))


def _describe_code(project: Project) -> str:
    if not project.has_cpu_glue:
        return "code for cuda alone"
    return f"kernels for {project.kernels[0]} alone" if project.kernels else "no kernels"


def _kernels_of(variant: VariantName, project: Project) -> set[KernelsName]:
    """The kernels of a variant: a CUDA variant has those of the CPU too, if there are such."""
    kernels = {KernelsName(), variant.kernels}
    return {name for name in kernels if name.device_type in project.kernels}


def print_verdicts(verdicts: list[Verdict], *, as_json: bool) -> None:
    if as_json:
        render.print_json(binaries=[_plain_verdict(verdict) for verdict in verdicts])
    else:
        print("\n\n".join(render.verdict_text(verdict) for verdict in verdicts))


def _plain_verdict(verdict: Verdict) -> dict[str, object]:
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
