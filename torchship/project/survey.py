"""What the C++ and CUDA sources of a repository hold: operators, macros, and what they include."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..builder.registered_twice import Twice, bound_names, registered_twice
from ..builder.sources import CUDA_SUFFIXES, HEADER_SUFFIXES, HOST_SUFFIXES

#: Folders at any depth whose sources are not the extension's own.
_FOREIGN = {
    "3rdparty",
    "benchmark",
    "benchmarks",
    "build",
    "cutlass",
    "dist",
    "examples",
    "external",
    "hip",
    "submodules",
    "test",
    "tests",
    "third_party",
    "thirdparty",
    "vendor",
}
_MAX_SOURCE = 4 << 20
_ATEN = re.compile(
    r"#\s*include\s*[<\"](torch/(extension|torch|all|script|library|types)\.h|ATen/|c10/)"
)
_PYTHON = re.compile(r"#\s*include\s*[<\"]Python\.h[>\"]|\bPyInit_|\bPyMODINIT_FUNC\b")
_LIBRARY = re.compile(r"\b(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT)?\s*\(\s*(\w+)\s*,")
_OLD_OPERATOR = re.compile(r"\.op\(\s*\"(\w+)::(\w+)")
_CUDA_MACRO = re.compile(r"#\s*if(?:def\b|\s+defined\b).*?\b((?:WITH|USE|HAVE|ENABLE)_CUDA)\b")


#: Code that is for CUDA alone has none of these.
_CPU = re.compile(
    r"#\s*if(?:n?def\b|\s+!?\s*defined\b).*?\b(?:WITH|USE|HAVE|ENABLE)_CUDA\b"
    r"|TORCH_LIBRARY_IMPL\s*\(\s*\w+\s*,\s*CPU\b|\bis_cpu\s*\(|\bat::parallel_for\b"
)
_IF_MACRO = re.compile(r"\s*#\s*(?:if(n?)def\s+(\w+)|if\s+(!?)\s*defined\s*\(?\s*(\w+)\s*\)?\s*$)")
_ELSEWHERE = re.compile("PYTHON|_WIN32")
_CUDA_HEADER = re.compile(r"#\s*include\s*[<\"](cuda|cublas|cusparse|curand|ATen/cuda/|c10/cuda/)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The facts about the sources."""

    sources: tuple[str, ...]  #: the host compiler's, relative to the repository
    cuda_sources: tuple[str, ...]
    namespaces: tuple[str, ...]
    operators: tuple[str, ...]
    cuda_macros: tuple[str, ...]  #: that are defined where the extension is built for CUDA
    has_cpu_code: bool  #: whether a source says that it has code for the CPU besides
    has_pybind: bool
    uses_aten: bool
    with_python: tuple[str, ...]  #: the sources that name Python's C API
    with_cuda_headers: tuple[str, ...]  #: the host's, that include CUDA's under no condition
    registered_twice: tuple[Twice, ...]


def find_sources(root: Path) -> list[str]:
    """The C++ and CUDA sources of the repository, outside folders of tests and of others' code."""
    suffixes = (*HOST_SUFFIXES, *CUDA_SUFFIXES)
    return [str(path.relative_to(root)) for path in _files(root) if path.suffix in suffixes]


def survey(root: Path, sources: Sequence[str], macros: Collection[str] = ()) -> Survey:
    """Reads these sources of the repository, and its headers for macros.

    An operator under a condition for a macro that is not among `macros` is not compiled.
    """
    texts = {
        name: (root / name).read_text(encoding="utf-8", errors="replace")
        for name in sources
        if (root / name).is_file() and (root / name).stat().st_size < _MAX_SOURCE
    }
    headers = [path for path in _files(root) if path.suffix in HEADER_SUFFIXES]
    more = [path.read_text(encoding="utf-8", errors="replace") for path in headers]
    content = "\n".join([*texts.values(), *more])
    defined = {*macros, *_CUDA_MACRO.findall(content)}
    compiled = [_compiled(_COMMENT.sub("", text), defined) for text in texts.values()]
    operators = "\n".join(compiled)
    old = _OLD_OPERATOR.findall(operators)
    has_pybind = "PYBIND11_MODULE" in operators
    host = {name: text for name, text in texts.items() if not name.endswith(CUDA_SUFFIXES)}
    return Survey(
        sources=tuple(host),
        cuda_sources=tuple(name for name in texts if name not in host),
        namespaces=_unique([*_LIBRARY.findall(operators), *(namespace for namespace, _ in old)]),
        operators=_unique(
            [*(name for text in compiled for name in bound_names(text)), *(name for _, name in old)]
        ),
        cuda_macros=_unique(_CUDA_MACRO.findall(content)),
        has_cpu_code=bool(_CPU.search(content)),
        has_pybind=has_pybind,
        uses_aten=has_pybind or bool(_ATEN.search(content)),
        with_python=tuple(n for n, text in texts.items() if _includes(text, _PYTHON, _ELSEWHERE)),
        with_cuda_headers=tuple(
            name for name, text in host.items() if _includes(text, _CUDA_HEADER, re.compile("."))
        ),
        registered_twice=tuple(registered_twice(texts)),
    )


def _compiled(text: str, macros: Collection[str]) -> str:
    """The lines that no condition for one macro leaves out; all other conditions are kept."""
    holds: list[bool] = []
    kept = []
    for line in text.splitlines():
        if opened := _IF_MACRO.match(line):
            is_defined = (opened[2] or opened[4]) in macros
            is_not = opened[1] == "n" or opened[3] == "!"
            # What an #ifndef asks is a guard of its own, or a default.
            holds.append(is_not or is_defined)
        elif re.match(r"\s*#\s*if", line):
            holds.append(True)
        elif re.match(r"\s*#\s*(else|elif)\b", line) and holds:
            holds[-1] = True
        elif re.match(r"\s*#\s*endif\b", line):
            del holds[-1:]
        elif all(holds):
            kept.append(line)
    return "\n".join(kept)


def _includes(text: str, what: re.Pattern[str], allowed: re.Pattern[str]) -> bool:
    """Whether a line has `what` where no condition with `allowed` holds.

    A header's own guard is no condition.
    """
    conditions: list[str] = []
    for line in text.splitlines():
        directive = re.match(r"\s*#\s*(if|ifdef|ifndef|endif)\b(.*)", line)
        if directive and directive[1] == "endif":
            del conditions[-1:]
        elif directive:
            conditions.append(directive[2])
        elif what.search(line) and not any(allowed.search(each) for each in conditions):
            return True
    return False


def _files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        is_own = not any(part.startswith(".") or part.lower() in _FOREIGN for part in parts[:-1])
        if is_own and path.is_file() and path.stat().st_size < _MAX_SOURCE:
            yield path


def _unique(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
