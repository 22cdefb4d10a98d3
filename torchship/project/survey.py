"""What a repository with an extension holds: its sources, its operators, and what setup.py says.

Nothing of the repository is run: setup.py is read as text.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..builder.registered_twice import Twice, registered_twice
from ..builder.sources import CUDA_SUFFIXES, HOST_SUFFIXES

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
_LIBRARY = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT)?\s*\(\s*(\w+)\s*,")
_DEFINED = re.compile(r"\.def\(\s*\"(?:\w+::)?(\w+)")
_OLD_OPERATOR = re.compile(r"\.op\(\s*\"(\w+)::(\w+)")
_CUDA_MACRO = re.compile(r"#\s*if(?:def\b|\s+defined\b).*?\b((?:WITH|USE|HAVE|ENABLE)_CUDA)\b")


#: Code that is for CUDA alone has none of these.
_CPU = re.compile(
    r"#\s*if(?:n?def\b|\s+!?\s*defined\b).*?\b(?:WITH|USE|HAVE|ENABLE)_CUDA\b"
    r"|TORCH_LIBRARY_IMPL\s*\(\s*\w+\s*,\s*CPU\b|\bis_cpu\s*\(|\bat::parallel_for\b"
)
_VERSION = re.compile(r"(?m)^__version__\s*=\s*[\"']([^\"']+)[\"']")


class _UnresolvedError(Exception):
    """An expression of setup.py whose value shows only when it runs."""


@dataclass(frozen=True, kw_only=True)
class ExtensionCall:
    """A call of CppExtension or CUDAExtension in setup.py."""

    is_cuda: bool
    is_choice: bool = False  #: between both, as setup.py runs
    sources: tuple[str, ...] = ()  #: may be patterns
    include: tuple[str, ...] = ()
    defines: Mapping[str, str | None]
    flags: tuple[str, ...] = ()
    nvcc_flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()  #: the arguments whose value shows only when setup.py runs


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The facts about a repository."""

    distribution: str | None
    version: str | None
    package: str | None  #: the one Python package at the top
    requires: tuple[str, ...]
    extensions: tuple[ExtensionCall, ...]
    sources: tuple[str, ...]  #: the host compiler's, relative to the repository
    cuda_sources: tuple[str, ...]
    namespaces: tuple[str, ...]
    operators: tuple[str, ...]
    cuda_macros: tuple[str, ...]  #: that are defined where the extension is built for CUDA
    is_for_cuda_alone: bool
    has_pybind: bool
    uses_aten: bool
    with_python: tuple[str, ...]  #: the sources that name Python's C API
    registered_twice: tuple[Twice, ...]


def survey(root: Path) -> Survey:
    """Reads the sources and setup.py of the repository in `root`."""
    setup = _Setup(root / "setup.py")
    sources = [path for path in _files(root) if path.suffix in (*HOST_SUFFIXES, *CUDA_SUFFIXES)]
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in sources}
    content = "\n".join(texts.values())
    old = _OLD_OPERATOR.findall(content)
    has_pybind = "PYBIND11_MODULE" in content
    package = _package(root)
    extensions = tuple(setup.extensions())
    return Survey(
        distribution=setup.text("name"),
        version=setup.text("version") or _version(root, package),
        package=package,
        requires=tuple(setup.words("install_requires")),
        extensions=extensions,
        sources=tuple(_names(root, sources, HOST_SUFFIXES)),
        cuda_sources=tuple(_names(root, sources, CUDA_SUFFIXES)),
        namespaces=_unique([*_LIBRARY.findall(content), *(namespace for namespace, _ in old)]),
        operators=_unique([*_DEFINED.findall(content), *(name for _, name in old)]),
        cuda_macros=_unique(_CUDA_MACRO.findall(content)),
        is_for_cuda_alone=_needs_cuda(extensions) and not _CPU.search(content),
        has_pybind=has_pybind,
        uses_aten=has_pybind or bool(_ATEN.search(content)),
        with_python=tuple(
            str(path.relative_to(root)) for path, text in texts.items() if _names_python(text)
        ),
        registered_twice=tuple(
            registered_twice({str(path.relative_to(root)): text for path, text in texts.items()})
        ),
    )


def _needs_cuda(extensions: Sequence[ExtensionCall]) -> bool:
    """Whether setup.py builds every extension with CUDA, and none without."""
    return bool(extensions) and all(call.is_cuda and not call.is_choice for call in extensions)


def _version(root: Path, package: str | None) -> str | None:
    """The version that the package's __init__.py says."""
    path = root / (package or "") / "__init__.py"
    content = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    version = _VERSION.search(content)
    return version[1] if version else None


def _names_python(text: str) -> bool:
    """Whether a source names Python's C API where no condition for Python or Windows holds."""
    conditions: list[str] = []
    for line in text.splitlines():
        directive = re.match(r"\s*#\s*(if|ifdef|ifndef|endif)\b(.*)", line)
        if directive and directive[1] == "endif":
            del conditions[-1:]
        elif directive:
            conditions.append(directive[2])
        elif _PYTHON.search(line) and not any(re.search("PYTHON|_WIN32", c) for c in conditions):
            return True
    return False


def _files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        is_own = not any(part.startswith(".") or part.lower() in _FOREIGN for part in parts[:-1])
        if is_own and path.is_file() and path.stat().st_size < _MAX_SOURCE:
            yield path


def _names(root: Path, files: Sequence[Path], suffixes: Sequence[str]) -> list[str]:
    return [str(path.relative_to(root)) for path in files if path.suffix in suffixes]


def _unique(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _package(root: Path) -> str | None:
    folders = [path.parent.name for path in sorted(root.glob("*/__init__.py"))]
    own = [name for name in folders if name.lower() not in _FOREIGN and name.isidentifier()]
    return own[0] if len(own) == 1 else None


class _Setup:
    """A setup.py whose expressions are evaluated as far as that needs no execution."""

    def __init__(self, path: Path) -> None:
        try:
            self._tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            self._tree = ast.Module(body=[], type_ignores=[])
        self._values: dict[str, object] = {"__file__": "setup.py"}
        self._classes: dict[str, bool] = {"CppExtension": False, "CUDAExtension": True}
        self._choices: set[str] = set()
        changed = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._assign(node.targets[0], node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                changed.add(node.target.id)
        for name in changed:
            self._values.pop(name, None)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            return
        named = {name.id for name in ast.walk(value) if isinstance(name, ast.Name)}
        is_class = isinstance(value, (ast.Name, ast.IfExp))
        if is_class and named & {"CppExtension", "CUDAExtension"}:
            self._classes[target.id] = "CUDAExtension" in named
            if "CppExtension" in named:
                self._choices.add(target.id)
            return
        try:
            self._values[target.id] = self._value(value)
        except _UnresolvedError:
            self._values.pop(target.id, None)

    def text(self, keyword: str) -> str | None:
        value = self._argument_of_setup(keyword)
        return value if isinstance(value, str) else None

    def words(self, keyword: str) -> list[str]:
        value = self._argument_of_setup(keyword)
        return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []

    def _argument_of_setup(self, keyword: str) -> object:
        for call in self._calls("setup"):
            for argument in call.keywords:
                if argument.arg == keyword:
                    try:
                        return self._value(argument.value)
                    except _UnresolvedError:
                        return None
        return None

    def _calls(self, *names: str) -> Iterator[ast.Call]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and _last_name(node.func) in names:
                yield node

    def extensions(self) -> Iterator[ExtensionCall]:
        for call in self._calls(*self._classes):
            given: dict[str, object] = {}
            unread: list[str] = []
            pairs = [(word.arg or "**", word.value) for word in call.keywords]
            pairs += zip(("name", "sources"), call.args, strict=False)
            for name, node in pairs:
                try:
                    given[name] = self._value(node)
                except _UnresolvedError:
                    unread.append(name)
            host = _Flags(_flags(given.get("extra_compile_args"), "cxx"))
            nvcc = _Flags(_flags(given.get("extra_compile_args"), "nvcc"))
            folders = [*_strings(given.get("include_dirs")), *host.folders, *nvcc.folders]
            name = _last_name(call.func)
            yield ExtensionCall(
                is_cuda=self._classes[name],
                is_choice=name in self._choices,
                sources=tuple(map(_inside, _strings(given.get("sources")))),
                include=tuple(map(_inside, folders)),
                defines=_macros(given.get("define_macros")) | host.defines | nvcc.defines,
                flags=tuple(host.others),
                nvcc_flags=tuple(nvcc.others),
                libraries=tuple(_strings(given.get("libraries"))),
                unread=tuple(name for name in unread if name != "name"),
            )

    def _value(self, node: ast.expr) -> object:
        """The value of an expression; raises _UnresolvedError if only a run would show it."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in self._values:
            return self._values[node.id]
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(element) for element in node.elts]
        if isinstance(node, ast.Dict) and all(node.keys):
            keys = [self._value(key) for key in node.keys if key is not None]
            return dict(zip(keys, map(self._value, node.values), strict=True))
        if isinstance(node, ast.JoinedStr):
            return "".join(str(self._value(_formatted(part))) for part in node.values)
        if isinstance(node, ast.BinOp):
            return self._joined(node)
        if isinstance(node, ast.Call):
            return self._called(node)
        raise _UnresolvedError

    def _joined(self, node: ast.BinOp) -> object:
        left = self._value(node.left)
        right = self._value(node.right)
        if isinstance(node.op, ast.Add):
            if isinstance(left, list) and isinstance(right, list):
                return left + right
            if isinstance(left, str) and isinstance(right, str):
                return left + right
        if isinstance(node.op, ast.Div) and isinstance(left, str) and isinstance(right, str):
            return _path(left, right)
        raise _UnresolvedError

    def _called(self, node: ast.Call) -> object:
        name = _last_name(node.func)
        values = [self._value(argument) for argument in node.args]
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) != len(values):
            if name == "list" and len(values) == 1:
                return values[0]
            raise _UnresolvedError
        if name == "join" and texts:
            return _path(*texts)
        if name in ("abspath", "realpath", "str", "Path") and len(texts) == 1:
            return texts[0]
        if name == "dirname" and texts == ["setup.py"]:
            return "."
        if name == "glob" and len(texts) == 1:
            return [texts[0]]
        raise _UnresolvedError


def _formatted(part: ast.expr) -> ast.expr:
    return part.value if isinstance(part, ast.FormattedValue) else part


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _path(*parts: str) -> str:
    return str(PurePosixPath(*parts))


def _inside(path: str) -> str:
    return str(PurePosixPath(path))


def _strings(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _macros(value: object) -> dict[str, str | None]:
    pairs = value if isinstance(value, list) else []
    return {
        str(pair[0]): None if pair[1] is None else str(pair[1])
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2
    }


def _flags(value: object, compiler: str) -> list[str]:
    """The flags for one compiler; those in a plain list are for the host's."""
    if isinstance(value, dict):
        return _strings(value.get(compiler))
    return _strings(value) if compiler == "cxx" else []


class _Flags:
    """A compiler's flags, without those that name folders of headers and macros."""

    def __init__(self, flags: Sequence[str]) -> None:
        self.folders: list[str] = []
        self.defines: dict[str, str | None] = {}
        self.others: list[str] = []
        remaining = iter(flags)
        for flag in remaining:
            if flag[:2] not in ("-I", "-D"):
                self.others.append(flag)
                continue
            # The value is in the flag itself or follows it.
            value = flag[2:].strip() or next(remaining, "")
            if flag[:2] == "-I":
                self.folders.append(value)
            else:
                name, is_valued, content = value.partition("=")
                self.defines[name] = content if is_valued else None
