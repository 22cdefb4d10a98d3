"""`torchship init`: makes a repository that has an extension one that torchship builds.

The first run writes `build_matrix.yaml` and `pyproject.toml` for what it finds; the author corrects
them. The second, `torchship init --finish`, adds the files that follow. Neither changes a file.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from .errors import REFUSED, ProjectError
from .finish import finish
from .render import TEMPLATES, names_of
from .survey import ExtensionCall, Survey, survey

MATRIX = "build_matrix.yaml"
PYPROJECT = "pyproject.toml"
README = "README.md"
#: What says the same as pyproject.toml; setuptools would read both.
_REPLACED = ("setup.py", "setup.cfg")
#: The CUDA of PyPI's torch, by the matrix of the template with kernels.
_KERNELS = """\
kernels:
  cuda12:
    toolkit: "12.8"
    archs: [sm_70, sm_80, sm_90, sm_100, sm_120, compute_120]
    code_in: glue
  cuda13:
    toolkit: "13.0"
    archs: [sm_75, sm_80, sm_90, sm_100, sm_120, compute_120]
    code_in: glue
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write build_matrix.yaml and pyproject.toml for the extension in a repository; "
        "no file that is there is changed."
    )
    add = parser.add_argument
    add("root", metavar="DIR", nargs="?", type=Path, default=Path(), help="the repository (.)")
    add("--name", help="of the wheels; by default what setup.py says")
    add("--finish", action="store_true", help="add the files that follow from both")


def run(options: argparse.Namespace) -> int:
    try:
        if options.finish:
            for name in finish(options.root):
                print(f"written {name}")
            return 0
        lines = init(options.root, options.name)
    except (ProjectError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    print("\n".join(lines))
    return 0


def init(root: Path, name: str | None = None) -> list[str]:
    """Writes the two files, and says what it found and what is left to do.

    Raises ProjectError if the repository has a matrix already, or no extension.
    """
    matrix = root / MATRIX
    if matrix.exists():
        raise ProjectError(
            f"{matrix} is there already, and init overwrites nothing; change it by hand, or remove "
            "it to begin again"
        )
    facts = survey(root)
    if not facts.sources and not facts.cuda_sources:
        raise ProjectError(
            f"{root} has no C++ or CUDA source outside folders of tests and of others' code; name "
            "the folder of the extension's repository, or make a new one with torchship new"
        )
    name = name or facts.distribution or root.resolve().name
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise ProjectError(
            f"the name {name!r} must be lower-case words joined by `-` or `_`; name another: --name"
        )
    package = facts.package or names_of(name).package
    matrix.write_text(_matrix(facts, name, package), encoding="utf-8")
    written = [f"written {matrix}"]
    content = _pyproject(facts, name, has_readme=(root / README).is_file())
    if (root / PYPROJECT).exists():
        left = [f"{PYPROJECT} is there already and was left as it is; it must say:", content]
    else:
        (root / PYPROJECT).write_text(content, encoding="utf-8")
        written.append(f"written {root / PYPROJECT}")
        left = []
    return [
        *written,
        *_found(facts),
        "left to do:",
        *left,
        *_replaced(root),
        *_left_to_do(facts, package),
    ]


def _namespace(facts: Survey, package: str) -> str:
    return facts.namespaces[0] if facts.namespaces else package


def _matrix(facts: Survey, name: str, package: str) -> str:
    """The matrix of a project without kernels, with this one's names, code and torches."""
    content = (TEMPLATES / "aten" / MATRIX).read_text(encoding="utf-8")
    names = names_of(name)
    operator = facts.operators[0] if facts.operators else "YOUR_OPERATOR"
    project = (
        "project:\n"
        f"  distribution: {names.distribution}\n"
        f"  summary: Operators for PyTorch\n"
        "  license: BSD-3-Clause\n"
        f"  url: https://example.org/{names.distribution}\n"
        f"  maintainers: [{names.distribution}-developers]\n"
        f"  package: {package}\n"
        f"  namespace: {_namespace(facts, package)}\n"
        f"  prefix: {package.upper()}\n"
        f"  operator: {operator}\n"
        "  wheel_limit: 100000000\n"
    )
    content = re.sub(r"(?m)^project:\n(?:  .*\n)*", lambda _: project, content)
    # Another platform is added once this one works.
    content = re.sub(r"(?m)^  linux-aarch64:\n(?:    .*\n)*", "", content)
    if facts.cuda_sources:
        content = content.replace("kernels: {}\n", _KERNELS)
    build = "\n".join(["build:", *_build(facts), "", ""])
    content = content.replace("# The glue that every", f"{build}# The glue that every", 1)
    return _with_torches(content, facts)


def _with_torches(content: str, facts: Survey) -> str:
    """The content with a glue for each torch; with the stable one alone if no code is ATen's."""
    before, mark, torches = content.partition("\ntorch:\n")
    minors = re.findall(r'(?m)^  "2\.\d+":\n(?:    .*\n)*', torches)
    if not facts.uses_aten:
        devices = ", ".join(_devices(facts, ["cu12", "cu13"]))
        before = re.sub(r"(?m)^  devices: .*$", f"  devices: [{devices}]", before)
        later = [minor for minor in minors if "    aten:" not in minor]
        return before + mark + "".join(later)
    before = re.sub(r"(?m)^  devices: .*$", "  devices: []", before)
    return before + mark + "".join(_with_glue(minor, facts) for minor in minors)


def _with_glue(minor: str, facts: Survey) -> str:
    cuda = re.search(r'cuda: \{version: "(\d+)', minor)
    devices = ", ".join(_devices(facts, [f"cu{cuda[1]}"] if cuda else []))
    return re.sub(r"    aten: .*\n", "", minor) + f"    aten: [{devices}]\n"


def _devices(facts: Survey, of_cuda: Sequence[str]) -> list[str]:
    """The devices that the code serves, where CUDA is one of `of_cuda`."""
    if not facts.cuda_sources:
        return ["cpu"]
    return [*([] if facts.is_for_cuda_alone else ["cpu"]), *of_cuda]


def _build(facts: Survey) -> Iterator[str]:
    """The lines of `build:`."""
    read = [call for call in facts.extensions if not call.unread and call.sources]
    is_known = bool(read) and len(read) == len(facts.extensions)
    named = [source for call in read for source in call.sources] if is_known else []
    host = [source for source in named if not source.endswith(".cu")] or _patterns(facts.sources)
    device = [source for source in named if source.endswith(".cu")]
    yield "  glue:"
    yield f"    sources: {json.dumps(_unique(host))}"
    if include := _unique([path for call in facts.extensions for path in call.include]):
        yield f"    include: {json.dumps(include)}"
    if flags := _own_flags([flag for call in facts.extensions for flag in call.flags]):
        yield f"    flags: {json.dumps(flags)}"
    defines = {key: value for call in facts.extensions for key, value in call.defines.items()}
    defines = {key: value for key, value in defines.items() if "PYTHON" not in key}
    own = {key: value for key, value in defines.items() if key not in facts.cuda_macros}
    if own:
        yield f"    defines: {json.dumps(own)}"
    if facts.cuda_sources:
        yield "    cuda:"
        yield f"      sources: {json.dumps(_unique(device) or _patterns(facts.cuda_sources))}"
        if facts.cuda_macros:
            yield f"      defines: {json.dumps(dict.fromkeys(facts.cuda_macros))}"
        if flags := _own_flags([flag for call in facts.extensions for flag in call.nvcc_flags]):
            yield f"      flags: {json.dumps(flags)}"
        libraries = [name for call in facts.extensions for name in call.libraries]
        if own_libraries := [name for name in _unique(libraries) if name.startswith("cu")]:
            yield f"      libraries: {json.dumps(own_libraries)}"
    requires = [word for word in facts.requires if not re.match(r"torch\b(?![-_])", word)]
    if requires:
        yield f"  requires: {json.dumps(requires)}"


def _patterns(files: Sequence[str]) -> list[str]:
    """One pattern for the files of each folder and suffix."""
    paths = map(PurePosixPath, files)
    return _unique([str(path.parent / f"*{path.suffix}") for path in paths])


def _unique(values: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _own_flags(flags: Sequence[str]) -> list[str]:
    """The flags that torchship does not give by itself, and that have no key of their own."""
    given = re.compile(
        r"-O\d|-g\d?|-fopenmp|-std=|-I|-D|-l(?!ineinfo)|-gencode|arch=|--?expt-relaxed"
    )
    return _unique([flag for flag in flags if not given.match(flag)])


def _pyproject(facts: Survey, name: str, *, has_readme: bool) -> str:
    requires = [word for word in facts.requires if not re.match(r"torch\b(?![-_])", word)]
    oldest = "2.4" if facts.uses_aten else "2.10"
    dependencies = json.dumps([f"torch>={oldest}", *requires])
    readme = f'readme = "{README}"\n' if has_readme else ""
    return f"""\
[build-system]
requires = ["torchship", "ninja"]
build-backend = "torchship.backend"

# The comments `#= ...` say how a value follows from build_matrix.yaml: change it there.
[project]
name = "{names_of(name).distribution}"  #= "{{distribution}}"
version = "{facts.version or "0.1.0"}"  #= "{{version}}"
description = "Operators for PyTorch"  #= "{{summary}}"
{readme}requires-python = ">=3.10"
dependencies = {dependencies}  #= {{requirements}}

[tool.setuptools]
include-package-data = false
"""


def _found(facts: Survey) -> Iterator[str]:
    lane = "ATen's headers: a glue for each torch" if facts.uses_aten else "the stable ABI alone"
    yield f"found: {len(facts.sources)} C++ and {len(facts.cuda_sources)} CUDA sources, with {lane}"
    if facts.is_for_cuda_alone:
        yield "found: code for CUDA alone; where that is wrong, add cpu to `aten:` in the matrix"
    kind = "bound by pybind11, which become operators" if facts.has_pybind else "operators"
    yield f"found: {', '.join(facts.operators) or 'none'} ({kind})"


def _replaced(root: Path) -> Iterator[str]:
    if names := [name for name in _REPLACED if (root / name).exists()]:
        yield f"  - remove {' and '.join(names)}, once {PYPROJECT} says what they said"


def _left_to_do(facts: Survey, package: str) -> Iterator[str]:
    namespace = _namespace(facts, package)
    yield f"  - read {MATRIX}: summary, licence, url and maintainers are placeholders"
    for call in facts.extensions:
        yield from _unread(call)
    if not facts.package:
        yield f"  - make the package {package}: there is no single folder with an __init__.py"
    if not facts.operators:
        yield "  - name one of your operators as `operator:` in the matrix; none was found"
    if len(facts.namespaces) > 1:
        yield f"  - one project has one namespace of operators; {facts.namespaces} were found"
    if facts.with_python:
        files = ", ".join(facts.with_python)
        yield f"  - remove Python.h and PyInit_ from {files}, or the macro that asks for them"
    for twice in facts.registered_twice:
        yield f"  - {twice.first} and {twice.second} both register {twice.what}: {twice.advice}"
    yield f"  - in {package}/__init__.py, in place of what loads the extension:"
    yield "        from .loader import LOADER"
    yield "        if LOADER.at_import():  # not for the doctor, which works where no binary does"
    yield "            from .ops import ...  # whatever needs the operators"
    yield f"    and torch.ops.{namespace}.NAME in place of names of the extension's module"
    yield f"  - write {package}/smoke.py, which every environment runs (docs: an op of your own)"
    yield "  - torchship init --finish: adds the files that follow; then pip install ."


def _unread(call: ExtensionCall) -> Iterator[str]:
    if call.unread:
        kind = "CUDAExtension" if call.is_cuda else "CppExtension"
        arguments = ", ".join(call.unread)
        yield f"  - compare `build:` with setup.py: its {kind} computes {arguments}"
