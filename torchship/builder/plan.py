"""Plans the commands that compile and link the binaries of a request."""

import json
import platform
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..judge.records import RECORD_SECTION, GlueName, KernelsName, file_name
from .glue_recipe import glue_recipe
from .options import project_file
from .programs import BuildError
from .recipes import Recipe, cpu_recipe, cuda_recipe, host_flags, link_flags
from .request import BuildRequest
from .sources import INCLUDE, git_commit, kernel_abi, source_date


@dataclass(frozen=True)
class Step:
    """One command, which reads `inputs` and writes `output`."""

    name: str
    inputs: tuple[Path, ...]
    output: Path
    command: tuple[str, ...]
    depfile: Path | None = None  #: the compiler writes the names of the headers that it reads there
    generated: str | None = None  #: the text to write into inputs[0] before the command runs
    more_outputs: tuple[Path, ...] = ()  #: what the command writes besides `output`
    after: tuple[Path, ...] = ()  #: what must be there before, without being an input


def plan(request: BuildRequest) -> list[Step]:
    """All steps of a request, in an order in which they can run.

    Raises BuildError if a compiler, torch, CUDA toolkit or source is missing or does not fit.
    """
    # ninja runs the steps in another folder, so paths must be absolute.
    request = replace(request, out_dir=request.out_dir.absolute())
    kernels = [_kernels_of_project(request, name) for name in request.kernels]
    glue = None if request.glue is None else GlueName.parse(request.glue)
    kinds = {"cpu" if name.cuda_major is None else "cuda" for name in kernels}
    steps = _generation_steps(request, kinds if glue is None else {*kinds, "glue"})
    written = tuple(path for step in steps for path in (step.output, *step.more_outputs))
    for name in kernels:
        make_recipe = cpu_recipe if name.cuda_major is None else cuda_recipe
        steps += _steps(request, file_name(name), make_recipe(request, name), written)
    if glue is not None:
        steps += _steps(request, file_name(glue), glue_recipe(request, glue), written)
    return steps


def _generation_steps(request: BuildRequest, kinds: Collection[str]) -> list[Step]:
    """The steps that run the project's own programs, which write sources of these objects."""
    steps = []
    for program in request.options.generated:
        if program.object not in kinds:
            continue
        outputs = tuple(request.generated_dir / name for name in program.outputs)
        inputs = {name: _input_of(request, name) for name in program.inputs}
        # Any word of the command may be one of the inputs.
        words = (str(inputs.get(word, word)) for word in program.command)
        command = [word.replace("{out}", str(request.generated_dir)) for word in words]
        interpreter = sys.executable if command[0] in ("python", "python3") else command[0]
        steps.append(
            Step(
                name=f"write {', '.join(program.outputs)}",
                inputs=tuple(inputs.values()),
                output=outputs[0],
                more_outputs=outputs[1:],
                command=(interpreter, *command[1:]),
            )
        )
    return steps


def _input_of(request: BuildRequest, name: str) -> Path:
    path = project_file(request.csrc, request.project, name)
    if not path.is_file():
        raise BuildError(
            f"`generated:` of {request.project.distribution} names the input {name}, but there is "
            f"no {path}; build from a checkout or a source distribution, or correct the name"
        )
    return path


def _kernels_of_project(request: BuildRequest, name: str) -> KernelsName:
    project = request.project
    if name.rstrip("0123456789") not in project.kernels:
        raise BuildError(
            f"{project.distribution} has no {name} kernels; leave them out of the request"
        )
    return KernelsName.parse(name)


def _steps(
    request: BuildRequest, file: str, recipe: Recipe, written: tuple[Path, ...]
) -> list[Step]:
    """The steps that compile every source and the build record, and the step that links.

    `written` are the files that the project's own programs write before.
    """
    compiler = request.compiler
    folder = request.out_dir / "objects" / file.removesuffix(".so")
    record = Step(
        name=f"compile record.cpp for {file}",
        inputs=(folder / "record.cpp",),
        output=folder / f"{folder.name}_record_cpp.o",
        command=(*compiler.command, "-std=c++17", *host_flags(request, "-O2")),
        generated=_record_source(request, file, recipe.facts),
    )
    steps = [
        Step(
            name=f"compile {source.name} for {file}",
            inputs=(source,),
            output=folder / _object_name(request, source),
            command=tuple(command),
            after=written,
        )
        for source, command in recipe.sources.items()
    ]
    steps = [_complete_compilation(request, step) for step in (*steps, record)]
    objects = tuple(step.output for step in steps)
    output = request.out_dir / file
    start = recipe.link or [*compiler.command, *link_flags(request.env)]
    link = Step(
        name=f"link {file}",
        inputs=objects,
        output=output,
        command=(*start, "-o", str(output), *map(str, objects), *recipe.libraries),
    )
    return [*steps, link]


def _object_name(request: BuildRequest, source: Path) -> Path:
    """The place of a source's object: two sources of one name lie in different folders."""
    roots = (request.generated_dir, request.csrc, INCLUDE, request.project.checkout)
    for root in roots:
        if source.is_relative_to(root):
            return Path(root.name, source.relative_to(root)).with_name(f"{source.name}.o")
    return Path(*source.parts[1:]).with_name(f"{source.name}.o")


def _complete_compilation(request: BuildRequest, step: Step) -> Step:
    """The step with the options for its files, and with the compiler cache before it."""
    depfile = step.output.with_suffix(".d")
    files = ("-MMD", "-MF", str(depfile), "-c", str(step.inputs[0]), "-o", str(step.output))
    compiler = request.compiler.command
    # A CXX of several words may already start with a launcher.
    has_launcher = len(compiler) > 1 and step.command[0] == compiler[0]
    launcher = () if has_launcher else request.launcher
    return replace(step, command=(*launcher, *step.command, *files), depfile=depfile)


def _record_source(request: BuildRequest, file: str, facts: Mapping[str, object]) -> str:
    """The C++ source of the build record."""
    kind, _, name = file.removesuffix(".so").partition("-")
    project = request.project
    compiler = request.compiler
    record = {
        "schema": 1,
        "kind": kind,
        "name": name,
        "package": project.distribution,
        "version": project.version,
        "kernel_abi": kernel_abi(request.csrc),
        "platform": f"{sys.platform}-{compiler.machine or platform.machine()}",
        "git_commit": git_commit(project, request.env),
        "source_date": source_date(project, request.env),
        "compiler": str(compiler),
        **facts,
    }
    return (
        "// Generated by the builder.\n"
        f'__attribute__((section("{RECORD_SECTION}"), used))\n'
        f"static const char record[] = {json.dumps(json.dumps(record, sort_keys=True))};\n"
        'extern "C" __attribute__((visibility("default")))\n'
        f"const char* {project.symbol('build_record')}(void) {{ return record; }}\n"
    )
