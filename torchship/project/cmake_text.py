"""Reads the target that links torch in a CMakeLists.txt, without running CMake.

Both branches of a condition are read: one that names CUDA is taken with CUDA alone, and its
`else()` without. Other conditions are taken as true. What a command does that is not in the table
is not known, and said.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .seen import Both, Seen, SeenExtension

_FILE = "CMakeLists.txt"
_MAX_FILE = 1 << 20
_MAX_DEPTH = 8
_COMMENT = re.compile(r"#\[(=*)\[.*?\]\1\]|#[^\n]*", re.DOTALL)
_COMMAND = re.compile(r"([A-Za-z_]\w*)\s*\(")
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|([^\s"()]+)|([()])', re.DOTALL)
_VARIABLE = re.compile(r"\$(?:ENV)?\{([\w.-]+)\}")
_TORCH = re.compile(r"^(torch|torch_library|torch_cpu|torch_cuda|torch_python|Torch::\w+)$")
_LIBRARIES = ("add_library", "pybind11_add_module", "nanobind_add_module")
#: Words of a command that are neither sources nor values.
_WORDS = {
    *("STATIC", "SHARED", "MODULE", "OBJECT", "INTERFACE", "PUBLIC", "PRIVATE", "BEFORE", "AFTER"),
    *("SYSTEM", "EXCLUDE_FROM_ALL", "THIN_LTO", "NO_EXTRAS", "WITH_SOABI", "USE_SABI"),
}
#: Commands that are for every target.
_GLOBAL = (
    "include_directories",
    "add_definitions",
    "add_compile_definitions",
    "add_compile_options",
)
_SOURCE = re.compile(r"\.(c|cc|cpp|cxx|c\+\+|cu)$")


@dataclass
class _Target:
    name: str
    is_program: bool = False
    sources: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    definitions: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    standard: str = ""


def read_cmake(root: Path) -> Both | None:
    """What the target that links torch is built from; None without such a target."""
    if not (root / _FILE).is_file():
        return None
    without = _Reader(root, has_cuda=False)
    with_cuda = _Reader(root, has_cuda=True)
    both = Both(without=without.seen(), with_cuda=with_cuda.seen())
    return both if both.without.extensions or both.with_cuda.extensions else None


class _Reader:
    def __init__(self, root: Path, *, has_cuda: bool) -> None:
        self._root = root.resolve()
        self._has_cuda = has_cuda
        self._targets: dict[str, _Target] = {}
        self._global = _Target("")
        self._unknown: list[str] = []
        self._variables: dict[str, list[str]] = {
            "CMAKE_SOURCE_DIR": [str(self._root)],
            "PROJECT_SOURCE_DIR": [str(self._root)],
            "TORCH_LIBRARIES": ["torch"],
        }
        self._read_folder(self._root, 0)

    def seen(self) -> Seen:
        extensions = [self._extension(target) for target in self._modules()]
        return Seen(
            place=_FILE,
            extensions=tuple(extensions),
            unknown=tuple(dict.fromkeys(self._unknown)),
        )

    def _modules(self) -> Iterator[_Target]:
        """The targets that link torch, and that no other such target links."""
        ours = [t for t in self._targets.values() if not t.is_program and self._links_torch(t)]
        inner = {name for target in ours for name in target.links}
        yield from (target for target in ours if target.name not in inner)

    def _links_torch(self, target: _Target) -> bool:
        return any(
            _TORCH.match(link) or re.search(r"libtorch\w*\.so$", link)
            for each in self._closure(target)
            for link in each.links
        )

    def _closure(self, target: _Target) -> list[_Target]:
        """The target, and those of the project that it links."""
        found = [target]
        for each in found:
            found += [
                self._targets[name]
                for name in each.links
                if name in self._targets and self._targets[name] not in found
            ]
        return found

    def _extension(self, module: _Target) -> SeenExtension:
        parts = [*self._closure(module), self._global]
        sources = [source for part in parts for source in part.sources]
        flags = [flag for part in parts for flag in part.flags]
        standard = "".join(self._variables.get("CMAKE_CXX_STANDARD", [])[:1])
        standards = [part.standard for part in parts if part.standard] + [standard] * bool(standard)
        flags += self._flags("CMAKE_CXX_FLAGS", "CMAKE_CXX_FLAGS_RELEASE")
        links = [link for part in parts for link in part.links if link not in self._targets]
        own = [link for link in links if not _TORCH.match(link) and not link.endswith(".so")]
        return SeenExtension(
            name=module.name,
            place=_FILE,
            is_cuda=self._has_cuda and any(source.endswith(".cu") for source in sources),
            sources=tuple(dict.fromkeys(sources)),
            include=tuple(dict.fromkeys(path for part in parts for path in part.include)),
            macros=tuple(_macro(word) for part in parts for word in part.definitions),
            flags=tuple(dict.fromkeys([*(f"-std=c++{one}" for one in standards[:1]), *flags])),
            nvcc_flags=tuple(self._flags("CMAKE_CUDA_FLAGS", "CMAKE_CUDA_FLAGS_RELEASE")),
            libraries=tuple(dict.fromkeys(own)),
        )

    def _flags(self, *variables: str) -> list[str]:
        """The words of these variables, which are for every target."""
        text = " ".join(word for name in variables for word in self._variables.get(name, []))
        return [word for word in text.split() if "$" not in word]

    def _read_folder(self, folder: Path, depth: int) -> None:
        path = folder / _FILE
        if depth > _MAX_DEPTH or not path.is_file() or path.stat().st_size > _MAX_FILE:
            return
        before = self._variables.get("CMAKE_CURRENT_SOURCE_DIR", [str(self._root)])
        self._variables["CMAKE_CURRENT_SOURCE_DIR"] = [str(folder)]
        self._variables["CMAKE_CURRENT_LIST_DIR"] = [str(folder)]
        conditions: list[bool] = []
        for name, words in _commands(path.read_text(encoding="utf-8", errors="replace")):
            if name in ("if", "while", "foreach", "function", "macro"):
                # The body of a function is no command of the project.
                conditions.append(self._holds(words) if name == "if" else name == "foreach")
            elif name in ("else", "elseif") and conditions:
                conditions[-1] = self._holds_else(conditions[-1], words, name)
            elif (name.startswith("end") and name != "endif") or name == "endif":
                del conditions[-1:]
            elif all(conditions):
                self._run(name, self._expanded(words), folder, depth)
        self._variables["CMAKE_CURRENT_SOURCE_DIR"] = before
        self._variables["CMAKE_CURRENT_LIST_DIR"] = before

    def _holds(self, words: Sequence[str]) -> bool:
        text = " ".join(words)
        if re.search(r"\b(APPLE|WIN32|MSVC|HIP|ROCM)\b", text):
            return "NOT" in words[:1]
        if re.search(r"CUDA.*VERSION.*LESS", text):
            return False  # a toolkit older than those of the matrix
        if re.search("CUDA|NVCC", text):
            return self._has_cuda != ("NOT" in words[:1])
        # Tests are no part of the extension.
        return not re.search("TEST|DOCS|EXAMPLE|BENCHMARK", text)

    def _holds_else(self, held: bool, words: Sequence[str], name: str) -> bool:
        return not held and (name == "else" or self._holds(words))

    def _expanded(self, words: Sequence[str]) -> list[str]:
        values: list[str] = []
        for word in words:
            whole = _VARIABLE.fullmatch(word)
            if whole:
                values += self._variables.get(whole[1], [])
                continue
            text = _VARIABLE.sub(lambda match: ";".join(self._variables.get(match[1], [])), word)
            values += [part for part in text.split(";") if part]
        return values

    def _run(self, name: str, words: list[str], folder: Path, depth: int) -> None:
        if self._sets_variable(name, words, folder) or not words:
            return
        if name == "add_subdirectory":
            self._read_folder(folder / words[0], depth + 1)
        elif name == "add_executable":
            self._targets[words[0]] = _Target(words[0], is_program=True)
        elif name in _LIBRARIES or re.fullmatch(r"python3?_add_library", name):
            self._targets[words[0]] = _Target(words[0], sources=self._sources(words[1:], folder))
        elif name in _GLOBAL:
            self._add(self._global, name, words, folder)
        elif name.startswith("target_") and words[0] in self._targets:
            self._add(self._targets[words[0]], name, words[1:], folder)
        elif name in ("set_property", "set_target_properties"):
            self._set_properties(words)
        elif words[0] == "OUTPUT_VARIABLE" and "SRCS" in words:
            self._unknown.append(f"{_FILE}: what {name}({' '.join(words)}) makes")

    def _sets_variable(self, name: str, words: list[str], folder: Path) -> bool:
        if name == "project" and words:
            self._variables["PROJECT_NAME"] = words[:1]
            if "VERSION" in words[:-1]:
                self._variables["PROJECT_VERSION"] = [words[words.index("VERSION") + 1]]
        elif name == "set" and words:
            self._variables[words[0]] = words[1:]
        elif name == "list" and words[:1] == ["APPEND"] and len(words) > 1:
            self._variables.setdefault(words[1], []).extend(words[2:])
        elif name == "file" and words[:1] in (["GLOB"], ["GLOB_RECURSE"]) and len(words) > 2:
            self._variables[words[1]] = self._found(words[2:], folder, words[0])
        else:
            return False
        return True

    def _add(self, target: _Target, name: str, words: Sequence[str], folder: Path) -> None:
        values = [word for word in words if word not in _WORDS]
        if name.endswith("sources"):
            target.sources += self._sources(values, folder)
        elif name.endswith("link_libraries"):
            target.links += values
        elif name.endswith("include_directories"):
            target.include += [self._relative(value, folder) for value in values]
        elif name.endswith("definitions"):
            target.definitions += [value.removeprefix("-D") for value in values]
        elif name.endswith("compile_options"):
            target.flags += values
        elif name.endswith("compile_features"):
            target.standard = "".join(re.findall(r"cxx_std_(\d+)", " ".join(values))[:1])

    def _set_properties(self, words: list[str]) -> None:
        for target in self._targets.values():
            if target.name in words and "CXX_STANDARD" in words[:-1]:
                target.standard = words[words.index("CXX_STANDARD") + 1]

    def _sources(self, words: Sequence[str], folder: Path) -> list[str]:
        return [self._relative(word, folder) for word in words if _SOURCE.search(word)]

    def _found(self, patterns: Sequence[str], folder: Path, kind: str) -> list[str]:
        found: list[str] = []
        for pattern in patterns:
            if pattern in ("CONFIGURE_DEPENDS", "RELATIVE"):
                continue
            path = folder / pattern
            deep = "**/" if kind == "GLOB_RECURSE" else ""
            if path.parent.is_dir():
                found += map(str, sorted(path.parent.glob(f"{deep}{path.name}")))
        return found

    def _relative(self, path: str, folder: Path) -> str:
        whole = (folder / path).resolve()
        return str(whole.relative_to(self._root)) if whole.is_relative_to(self._root) else path


def _macro(word: str) -> tuple[str, str | None]:
    name, mark, value = word.partition("=")
    return name, value.strip('"\\') if mark else None


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands with their words; what is no command is left out."""
    text = _COMMENT.sub("", text)
    place = 0
    while command := _COMMAND.search(text, place):
        words: list[str] = []
        depth = 1
        place = command.end()
        while depth and (word := _WORD.search(text, place)):
            place = word.end()
            depth += {"(": 1, ")": -1}.get(word[3] or "", 0)
            if word[3] is None:
                words.append(word[1] if word[1] is not None else word[2])
        yield command[1].lower(), words
