"""Reads the target that links torch in a CMakeLists.txt, without running CMake.

Both branches of a condition are read: one that names CUDA is taken with CUDA alone, and its
`else()` without. A condition of one variable that nothing turns on is taken as false, and said;
others are taken as true. What a command does that is not in the table is not known, and said.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .seen import Both, Seen, SeenExtension

_FILE = "CMakeLists.txt"
_MAX_FILE = 1 << 20
_MAX_DEPTH = 8
_MAX_CALLS = 1000  # of functions, which may call themselves
#: A comment, or a string, in which a `#` begins none.
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|#\[(=*)\[.*?\]\2\]|#[^\n]*', re.DOTALL)
_COMMAND = re.compile(r"([A-Za-z_]\w*)\s*\(")
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|([^\s"()]+)|([()])', re.DOTALL)
_VARIABLE = re.compile(r"\$(?:ENV)?\{([\w.-]+)\}")
_TORCH = re.compile(r"^((lib)?(torch|c10)(_(cpu|cuda|python))?(_library)?|Torch::\w+)$")
#: Folders and libraries of torch, Python and the toolkit, which every build has.
_PROVIDED = re.compile(
    r"\$\{(CMAKE_CUDA_TOOLKIT|TORCH|Torch|Python3?|PYTHON|pybind11|PYBIND11|CUDA|CUDAToolkit)_"
)
#: Conditions of another system.
_ELSEWHERE = re.compile(r"\b(APPLE|WIN32|MSVC|HIP|ROCM)\b")
#: Conditions of what is no part of the extension.
_NO_PART = re.compile("TEST|DOCS|EXAMPLE|BENCHMARK")
_OFF = ("OFF", "0", "FALSE", "NO", "N", "IGNORE", "NOTFOUND", "")
#: `-DNAME=ON` or `-DNAME:BOOL=ON`, by which a setup.py turns a variable on.
_GIVEN = re.compile(r"-D([A-Za-z_]\w*)(?::[A-Z]+)?=")
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


_Command = tuple[str, list[str]]


@dataclass
class _Function:
    """A function or macro of the project."""

    parameters: list[str]
    body: list[_Command]


@dataclass
class _Target:
    name: str
    is_program: bool = False  #: or an interface, which is nothing that is built
    sources: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    definitions: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    standard: str = ""


def read_cmake(root: Path, folder: str = "", modules: Collection[str] = ()) -> Both | None:
    """What the target that links torch is built from; None without such a target.

    `folder` is that of the project in `root`. Where no target links torch, those are taken that
    have the name of one of the `modules`, which setup.py leaves to CMake.
    """
    if not (root / folder / _FILE).is_file():
        return None
    names = {module.rpartition(".")[2] for module in modules}
    without = _Reader(root, folder, names, has_cuda=False).seen()
    with_cuda = _Reader(root, folder, names, has_cuda=True).seen()
    both = Both(without=without, with_cuda=with_cuda)
    return both if without.extensions or with_cuda.extensions else None


class _Reader:
    def __init__(
        self, root: Path, folder: str, modules: Collection[str], *, has_cuda: bool
    ) -> None:
        self._root = root.resolve()
        self._top = (self._root / folder).resolve()
        self._place = (self._top / _FILE).relative_to(self._root).as_posix()
        self._modules_named = modules
        self._has_cuda = has_cuda
        self._needs_cuda = False
        self._functions: dict[str, _Function] = {}
        self._calls = 0
        self._given = _given(self._root)
        self._targets: dict[str, _Target] = {}
        self._global = _Target("")
        self._unknown: list[str] = []
        self._untaken: list[str] = []
        self._set_elsewhere: set[str] = set()  # in branches that were not taken
        self._variables: dict[str, list[str]] = {
            "CMAKE_SOURCE_DIR": [str(self._top)],
            "PROJECT_SOURCE_DIR": [str(self._top)],
            "TORCH_LIBRARIES": ["torch"],
        }
        self._read_folder(self._top, 0)

    def seen(self) -> Seen:
        if self._needs_cuda and not self._has_cuda:
            return Seen(place=self._place, error="its CMake project is for CUDA alone")
        extensions = [self._extension(target) for target in self._modules()]
        return Seen(
            place=self._place,
            extensions=tuple(extensions),
            unknown=tuple(dict.fromkeys(self._unknown)),
            untaken=tuple(name for name in dict.fromkeys(self._untaken) if self._is_off(name)),
        )

    def _modules(self) -> Iterator[_Target]:
        """The targets that link torch, and that no other such target links."""
        built = [target for target in self._targets.values() if not target.is_program]
        ours = [target for target in built if self._links_torch(target)]
        ours = ours or [target for target in built if target.name in self._modules_named]
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
            place=self._place,
            is_cuda=self._has_cuda and any(source.endswith(".cu") for source in sources),
            sources=tuple(dict.fromkeys(sources)),
            include=tuple(dict.fromkeys(path for part in parts for path in part.include)),
            macros=tuple(_macro(word) for part in parts for word in part.definitions),
            flags=tuple(dict.fromkeys([*(f"-std=c++{one}" for one in standards[:1]), *flags])),
            nvcc_flags=(
                *self._flags("CMAKE_CUDA_FLAGS", "CMAKE_CUDA_FLAGS_RELEASE"),
                *(f"-arch={one}" for one in self._variables.get("CMAKE_CUDA_ARCHITECTURES", [])),
            ),
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
        commands = [*_commands(path.read_text(encoding="utf-8", errors="replace"))]
        self._run_all(commands, folder, depth)
        self._variables["CMAKE_CURRENT_SOURCE_DIR"] = before
        self._variables["CMAKE_CURRENT_LIST_DIR"] = before

    def _run_all(self, commands: Iterable[_Command], folder: Path, depth: int) -> None:
        conditions: list[bool] = []
        for name, words in self._without_functions(commands):
            if name in ("if", "while", "foreach"):
                is_reached = all(conditions)
                conditions.append(name == "foreach" or self._holds(words, is_said=is_reached))
            elif name in ("else", "elseif") and conditions:
                conditions[-1] = self._holds_else(conditions[-1], words, name)
            elif name.startswith("end"):
                del conditions[-1:]
            elif all(conditions):
                self._run(name, words, folder, depth)
            elif name == "set" and words:
                self._set_elsewhere.add(words[0])

    def _without_functions(self, commands: Iterable[_Command]) -> Iterator[_Command]:
        """The commands that are run where they stand; those of a function are kept for its call."""
        body: list[_Command] | None = None
        for name, words in commands:
            if name in ("endfunction", "endmacro"):
                body = None
            elif body is not None:
                body.append((name, words))
            elif name in ("function", "macro") and words:
                body = []
                self._functions[words[0].lower()] = _Function(words[1:], body)
            else:
                yield name, words

    def _call(self, function: "_Function", words: Sequence[str], folder: Path, depth: int) -> None:
        """Runs the body of a function with its parameters; each is one value, maybe a list."""
        self._calls += 1
        if self._calls > _MAX_CALLS:
            self._unknown.append(
                f"{self._place}: what more than {_MAX_CALLS} calls of functions do"
            )
            return
        before = dict(self._variables)
        values = [";".join(self._expanded([word])) for word in words]
        for name, value in zip(function.parameters, values, strict=False):
            self._variables[name] = [part for part in value.split(";") if part]
        self._variables["ARGN"] = values[len(function.parameters) :]
        self._variables["ARGV"] = values
        if depth < _MAX_DEPTH:
            self._run_all(function.body, folder, depth + 1)
        self._variables = before

    def _holds(self, words: Sequence[str], *, is_said: bool = False) -> bool:
        text = " ".join(words)
        if "AND" in words and not {"OR", "(", ")"} & {*words}:
            at = words.index("AND")
            return self._holds(words[:at]) and self._holds(words[at + 1 :])
        name = words[-1] if words else ""
        if words in ([name], ["NOT", name]) and name.isidentifier() and self._is_off(name):
            is_other = _ELSEWHERE.fullmatch(name) or _NO_PART.search(name)
            if is_said and words == [name] and not is_other:
                self._untaken.append(name)
            return words != [name]
        if _ELSEWHERE.search(text):
            return "NOT" in words[:1]
        if re.search(r"BUILD_TYPE.*\bDebug\b", text):
            return "NOT" in words[:1]
        if re.search(r"CUDA.*VERSION.*LESS", text):
            return False  # a toolkit older than those of the matrix
        if re.search("CUDA|NVCC", text):
            return self._has_cuda != ("NOT" in words[:1])
        return not _NO_PART.search(text)

    def _is_off(self, name: str) -> bool:
        """Whether nothing turns on a variable of the project."""
        if name in self._given or re.search("CUDA|NVCC|^CMAKE_|FOUND|^(UNIX|LINUX)$", name):
            return False
        if _ELSEWHERE.fullmatch(name):
            return True
        value = self._variables.get(name, [])
        return all(word.upper() in _OFF for word in value)

    def _holds_else(self, held: bool, words: Sequence[str], name: str) -> bool:
        return not held and (name == "else" or self._holds(words))

    def _expanded(self, words: Sequence[str], *, is_all_named: bool = False) -> list[str]:
        """The words with the values of variables; one without a value stays if all are named."""
        values: list[str] = []
        for word in words:
            whole = _VARIABLE.fullmatch(word)
            if is_all_named and (named := self._named(word)) is not None:
                values += named
                continue
            if whole:
                values += self._variables.get(whole[1], [])
                continue
            # A part of a path that is not known stays, so that what names the path can be told.
            text = _VARIABLE.sub(
                lambda match: ";".join(self._variables.get(match[1], [match[0]])), word
            )
            values += [part for part in text.split(";") if part]
        return values

    def _named(self, word: str) -> list[str] | None:
        """What stands for a word with a variable that the project does not set; None without one.

        What torch, Python and the toolkit set is in every build.
        """
        unset = [name for name in _VARIABLE.findall(word) if name not in self._variables]
        if not unset:
            return None
        is_known = _PROVIDED.match(word) or {*unset} <= self._set_elsewhere
        return [] if is_known else [word]

    def _run(self, name: str, said: list[str], folder: Path, depth: int) -> None:
        if name in self._functions:
            self._call(self._functions[name], said, folder, depth)
            return
        is_of_target = name in _GLOBAL or name.startswith("target_")
        words = self._expanded(said, is_all_named=is_of_target)
        if words and not self._sets_variable(name, words, folder):
            self._run_on_targets(name, words, folder, depth)

    def _run_on_targets(self, name: str, words: list[str], folder: Path, depth: int) -> None:
        if name == "add_subdirectory":
            self._read_folder(folder / words[0], depth + 1)
        elif name == "add_executable" or (name in _LIBRARIES and "INTERFACE" in words[1:2]):
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
        if name == "project":
            self._needs_cuda |= "CUDA" in words[1:]
            self._variables["PROJECT_NAME"] = words[:1]
            if "VERSION" in words[:-1]:
                self._variables["PROJECT_VERSION"] = [words[words.index("VERSION") + 1]]
        elif name == "enable_language":
            self._needs_cuda |= "CUDA" in words
        elif name == "set":
            self._set(words)
        elif name.startswith(("check_", "find_")) or name == "option":
            self._variables |= _answers(name, words)
        elif name == "list" and len(words) > 1:
            self._variables[words[1]] = self._listed(words)
        elif name == "file" and words[:1] in (["GLOB"], ["GLOB_RECURSE"]) and len(words) > 2:
            self._variables[words[1]] = self._found(words[2:], folder, words[0])
        else:
            return False
        return True

    def _set(self, words: Sequence[str]) -> None:
        value = list(words[1:])
        for end in ("CACHE", "PARENT_SCOPE"):
            value = value[: value.index(end)] if end in value else value
        # What setup.py gives to CMake is in the cache before.
        if "CACHE" not in words or words[0] not in self._given:
            self._variables[words[0]] = value

    def _listed(self, words: Sequence[str]) -> list[str]:
        """What a list is after list(OPERATION NAME ...)."""
        values = self._variables.get(words[1], [])
        if words[0] == "APPEND":
            return [*values, *words[2:]]
        if words[0] == "REMOVE_ITEM":
            return [value for value in values if value not in words[2:]]
        if words[0] == "FILTER" and len(words) == 5:
            # CMake's patterns are not quite Python's; one that Python refuses is named below.
            with suppress(re.error):
                pattern = re.compile(words[4].replace("\\\\", "\\"))
                is_kept = words[2] == "INCLUDE"
                return [value for value in values if bool(pattern.search(value)) == is_kept]
        if words[0] not in ("LENGTH", "REMOVE_DUPLICATES", "SORT", "REVERSE", "GET", "FIND"):
            self._unknown.append(f"{self._place}: what list({' '.join(words[:2])}) makes")
        return values

    def _add(self, target: _Target, name: str, words: Sequence[str], folder: Path) -> None:
        values = [word for word in words if word not in _WORDS]
        if name.endswith("sources"):
            target.sources += self._sources(values, folder)
        elif name.endswith("link_libraries"):
            target.links += [value for value in values if not _PROVIDED.match(value)]
        elif name.endswith("include_directories"):
            folders = [value for value in values if not _PROVIDED.match(value)]
            target.include += self._folders(folders, folder)
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

    def _folders(self, words: Sequence[str], folder: Path) -> Iterator[str]:
        """The include folders; one in the build's interface is meant as it is."""
        for word in words:
            path = re.sub(r"^\$<BUILD_INTERFACE:(.*)>$", r"\1", word)
            if path.startswith("$"):
                yield from () if path.startswith("$<INSTALL_INTERFACE:") else (path,)
            else:
                yield self._relative(path, folder)

    def _relative(self, path: str, folder: Path) -> str:
        whole = (folder / path).resolve()
        return str(whole.relative_to(self._root) if whole.is_relative_to(self._root) else whole)


def _answers(name: str, words: Sequence[str]) -> dict[str, list[str]]:
    """The variable that a question sets: to the compilers, to the machine, or to the user.

    Where a library or a file is found is not known, but what uses it is named: a library by its
    name, and a path by a `$`, as one outside of the repository.
    """
    if name.startswith("check_"):
        return {words[-1]: ["ON"]}  # the compilers of today take what is asked for
    if name == "option":
        return {words[0]: list(words[2:3]) or ["OFF"]}
    if name == "find_library":
        names = [word for word in words[1:] if word not in ("NAMES", "REQUIRED")]
        return {words[0]: [f"lib{one.removeprefix('lib')}" for one in names[:1]]}
    return {words[0]: [f"${words[0]}"]} if name in ("find_path", "find_file") else {}


def _given(root: Path) -> set[str]:
    """The variables that a Python file of the repository, or pyproject.toml, gives to CMake."""
    names: set[str] = set()
    for path in [*root.glob("*.py"), *root.glob("*/*.py"), *root.glob("*/*/*.py")]:
        if path.is_file() and path.stat().st_size < _MAX_FILE:
            names.update(_GIVEN.findall(path.read_text(encoding="utf-8", errors="replace")))
    pyproject = root / "pyproject.toml"
    if pyproject.is_file():
        content = pyproject.read_text(encoding="utf-8", errors="replace")
        table = re.search(r"(?ms)^\[tool\.scikit-build\.cmake\.define\]\n(.*?)(^\[|\Z)", content)
        names.update(re.findall(r"(?m)^([\w-]+)\s*=", table[1] if table else ""))
    return names


def _macro(word: str) -> tuple[str, str | None]:
    name, mark, value = word.partition("=")
    return name, value.strip('"\\') if mark else None


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands with their words; what is no command is left out."""
    text = _COMMENT.sub(lambda match: match[1] or "", text)
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
