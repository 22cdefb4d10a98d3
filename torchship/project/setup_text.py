"""Reads a setup.py as text, for `torchship init --no-run`: what it computes stays unknown."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from .seen import Both, Macros, Seen, SeenExtension, SeenMetadata

_KNOWN = {
    *("name", "sources", "include_dirs", "define_macros", "extra_compile_args", "libraries"),
    *("extra_link_args", "py_limited_api"),
}


#: The methods that change a list or a dictionary.
_CHANGING = {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault"}


class _UnresolvedError(Exception):
    """An expression of setup.py whose value shows only when it runs."""


def read_setup(root: Path) -> Both:
    """What setup.py of `root` says, as far as that needs no execution."""
    setup = _Setup(root / "setup.py")
    every = tuple(setup.extensions())
    is_choice = setup.has_choice
    unknown = tuple(
        f"{keyword} of setup()"
        for keyword in ("name", "version", "install_requires")
        if setup.is_computed(keyword)
    )
    if setup.is_computed("ext_modules") and not every:
        unknown = (*unknown, "ext_modules of setup()")
    if setup.is_unpacked:
        unknown = (*unknown, "what setup() is given by `**`")
    seen = Seen(place="setup.py", extensions=every, metadata=setup.metadata(), unknown=unknown)
    host = tuple(_without_cuda(each) for each in every if not each.is_cuda or is_choice)
    without = replace(seen, extensions=host)
    if every and not host:
        without = Seen(place="setup.py", error="it has only a CUDAExtension")
    return Both(without=without, with_cuda=seen)


def _without_cuda(extension: SeenExtension) -> SeenExtension:
    sources = tuple(source for source in extension.sources if not source.endswith(".cu"))
    return replace(extension, is_cuda=False, sources=sources, nvcc_flags=())


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
            elif isinstance(node, ast.Attribute) and node.attr in _CHANGING:
                changed.update(name.id for name in ast.walk(node) if isinstance(name, ast.Name))
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

    def _text(self, keyword: str) -> str:
        value = self._argument_of_setup(keyword)
        return value if isinstance(value, str) else ""

    def _words(self, keyword: str) -> list[str]:
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

    @property
    def has_choice(self) -> bool:
        """Whether a name stands for CppExtension or CUDAExtension, as setup.py runs."""
        return bool(self._choices)

    def is_computed(self, keyword: str) -> bool:
        """Whether an argument of setup() is there, and its value shows only when it runs."""
        given = any(
            argument.arg == keyword for call in self._calls("setup") for argument in call.keywords
        )
        return given and self._argument_of_setup(keyword) is None

    @property
    def is_unpacked(self) -> bool:
        """Whether arguments of setup() are those of a dictionary."""
        return any(word.arg is None for call in self._calls("setup") for word in call.keywords)

    def metadata(self) -> SeenMetadata:
        return SeenMetadata(
            name=self._text("name"),
            version=self._text("version"),
            summary=self._text("description"),
            license=self._text("license"),
            author=self._text("author"),
            author_email=self._text("author_email"),
            url=self._text("url"),
            classifiers=tuple(self._words("classifiers")),
            requires_python=self._text("python_requires"),
            requires=tuple(self._words("install_requires")),
        )

    def extensions(self) -> Iterator[SeenExtension]:
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
            unread += [name for name in given if name not in _KNOWN]
            function = _last_name(call.func)
            yield SeenExtension(
                name=str(given.get("name", "")),
                place="setup.py",
                is_cuda=self._classes[function],
                sources=tuple(map(_inside, _strings(given.get("sources")))),
                include=tuple(map(_inside, _strings(given.get("include_dirs")))),
                macros=_macros(given.get("define_macros")),
                flags=tuple(_flags(given.get("extra_compile_args"), "cxx")),
                nvcc_flags=tuple(_flags(given.get("extra_compile_args"), "nvcc")),
                libraries=tuple(_strings(given.get("libraries"))),
                link_flags=tuple(_strings(given.get("extra_link_args"))),
                py_limited_api=given.get("py_limited_api") is True,
                unread=tuple(unread),
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


def _macros(value: object) -> Macros:
    pairs = value if isinstance(value, list) else []
    return tuple(
        (str(pair[0]), None if pair[1] is None else str(pair[1]))
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2
    )


def _flags(value: object, compiler: str) -> list[str]:
    """The flags for one compiler; those in a plain list are for the host's."""
    if isinstance(value, dict):
        return _strings(value.get(compiler))
    return _strings(value) if compiler == "cxx" else []
