"""The section `build:` of a matrix, from what a repository's own build was seen to do."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ..builder.cuda_libraries import CUDA_LIBRARIES, SYSTEM_LIBRARIES
from ..builder.sources import CUDA_SUFFIXES, HOST_SUFFIXES
from .carried import WITH_ALONE, WITHOUT_ALONE, Report
from .seen import Both, SeenExtension
from .survey import Survey

#: Flags whose value is the next word.
_WITH_WORD = {
    *("-Xcompiler", "-Xptxas", "-Xcudafe", "-Xlinker", "-Xfatbin", "-ccbin", "--threads"),
    *("-isystem", "-include", "-I", "-D", "-U", "-L", "-l", "-gencode", "--maxrregcount"),
    *("-arch", "-diag-suppress", "--diag-suppress"),
}
#: Why a flag has no place, by a pattern at its start.
_NEEDLESS = {
    r"-O2$|-fPIC$|-DNDEBUG$": "torchship gives it",
    r"-g\d?$": "torchship gives it where DEBUG is set",
    r"-fopenmp$|-lgomp$": "torchship compiles with OpenMP, whose library torch brings",
    r"-std=(c|gnu)\+\+(98|11|14|17|0x|1[yz])$|--std=c\+\+1[147]$": "C++17 is the oldest standard",
    r"-gencode|-arch|--gpu-|arch=": (
        "the matrix has its own architectures, under `kernels:`, in `archs:`; change them there"
    ),
    r"--threads|-t=?\d": "how many files are compiled at a time does not depend on the code",
    r"--?expt-relaxed-constexpr$": "torchship gives it",
    r"-ccbin": "the compiler is chosen by CXX",
    r"-D(_GLIBCXX_USE_CXX11_ABI|TORCH_EXTENSION_NAME|TORCH_API_INCLUDE_EXTENSION_H)": (
        "torchship gives what the torch needs"
    ),
}
#: Why a flag cannot be carried over as it is.
_REFUSED = {
    r"-m(arch|cpu|tune)=native": (
        "it is for the building machine alone; name the oldest processor that you serve"
    ),
    r"-rdc|--relocatable-device-code|-dc": "no step links device code",
    r"-isystem|-include": "name the folder under `include:`, or include the file in the sources",
    r"-L": "compile the sources of the library with yours",
}
#: Libraries that an author need not name.
_PROVIDED = re.compile(
    r"torch(_cpu|_cuda|_python)?|c10|c10_cuda|cuda|cudart|cudart_static|gomp"
    r"|(pybind11|OpenMP|Python3?)::.*"
)
#: Libraries that torch for CUDA brings, but to which no binary of the matrix is linked.
_OF_TORCH = {"nvrtc", "nccl", "cudnn", "cupti", "nvToolsExt", "cusparseLt", "nvJitLink"}
#: Tells the new file of a source that nvcc compiles where there is CUDA, and g++ elsewhere.
_BY_NVCC = "CUDA_SOURCES_ARE_COMPILED"
_Value = TypeVar("_Value")
_IDENTIFIER = re.compile(r"[A-Za-z]\w*")
_PLAIN = re.compile(r"[\w@%+=:./,-]*")


@dataclass
class Options:
    """What one kind of object is compiled from and with."""

    sources: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    defines: dict[str, str | None] = field(default_factory=dict)
    libraries: list[str] = field(default_factory=list)
    std: int | None = None


@dataclass
class BuildSection:
    """`build:`, and which devices its code serves."""

    host: Options = field(default_factory=Options)
    cuda: Options = field(default_factory=Options)
    data: list[str] = field(default_factory=list)
    requires: list[str] = field(default_factory=list)
    #: Files in .cu that are C++ on a machine without CUDA, and the new files that include them.
    wrapped: dict[str, str] = field(default_factory=dict)
    #: Sources that a machine with CUDA does not compile, and the new files that include them.
    alone: dict[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> list[str]:
        """The sources that are there now."""
        new = {*self.wrapped.values(), *self.alone.values()}
        own = [name for name in self.host.sources if name not in new]
        return [*own, *self.alone, *self.cuda.sources]

    def are_apart(self, first: str, second: str) -> bool:
        """Whether no glue has both sources."""
        pairs = ((first, second), (second, first))
        return any(one in self.alone and other in self.cuda.sources for one, other in pairs)

    def wrappers(self) -> dict[str, str]:
        """The texts of the new files."""
        lines = {old: f"Without CUDA, {Path(old).name} is C++." for old in self.wrapped}
        lines |= {old: f"With CUDA, others stand for {Path(old).name}." for old in self.alone}
        return {
            new: f'// {lines[old]}\n#ifndef {_BY_NVCC}\n#include "{Path(old).name}"\n#endif\n'
            for old, new in {**self.wrapped, **self.alone}.items()
        }

    def yaml(self) -> Iterator[str]:
        yield "build:"
        yield "  glue:"
        yield from _yaml(self.host, "    ")
        if self.cuda != Options():
            yield "    cuda:"
            yield from _yaml(self.cuda, "      ")
        for key, values in (("data", self.data), ("requires", self.requires)):
            if values:
                yield f"  {key}: {json.dumps(values)}"


def _yaml(options: Options, indent: str) -> Iterator[str]:
    yield f"{indent}sources: {json.dumps(options.sources)}"
    for key, value in (
        ("include", options.include),
        ("flags", options.flags),
        ("defines", options.defines),
        ("libraries", options.libraries),
        ("std", options.std),
    ):
        if value:
            yield f"{indent}{key}: {json.dumps(value)}"


def make_build(root: Path, both: Both, report: Report) -> BuildSection:
    """The section for what both kinds of machine build, with a line for each value."""
    section = BuildSection(wrapped=_compiled_as_cpp(root, both))
    remaining = list(both.without.extensions)
    pairs: list[tuple[SeenExtension, SeenExtension | None]] = []
    for extension in both.with_cuda.extensions or both.without.extensions:
        # Two may have one name, which is a mistake that is told elsewhere.
        twin = next((one for one in remaining if one.name == extension.name), None)
        if twin is not None:
            remaining.remove(twin)
        pairs.append((extension, extension if both.needs_cuda else twin))
    # There may be fewer extensions with CUDA than without.
    pairs += [(SeenExtension(name="", place=one.place), one) for one in remaining]
    # What is common to both machines comes first, so that CUDA's options need not repeat it.
    for extension, twin in sorted(pairs, key=lambda pair: pair[1] is None):
        _Joiner(extension, twin, root=root, section=section, report=report).join()
    _add_sources_for_cuda(section, both, report)
    return section


def _add_sources_for_cuda(section: BuildSection, both: Both, report: Report) -> None:
    """Names the C++ sources as those of CUDA too, where no .cu file is: they call it themselves."""
    is_cuda = section.cuda != Options() or (
        both.needs_cuda and any(extension.is_cuda for extension in both.seen.extensions)
    )
    if section.cuda.sources or not is_cuda:
        return
    section.cuda.sources += section.host.sources
    for source in section.host.sources:
        why = "there is no .cu file, so this one is compiled for CUDA besides"
        report.carried(f"source {source}", both.seen.place, "build: glue: cuda: sources", why)


def _compiled_as_cpp(root: Path, both: Both) -> dict[str, str]:
    if both.needs_cuda:
        return {}
    return {
        source: f"{source[:-3]}{'_host' * (root / source).with_suffix('.cpp').exists()}.cpp"
        for extension in both.without.extensions
        for source in extension.sources
        if source.endswith(CUDA_SUFFIXES) and not extension.is_cuda
    }


def with_found(section: BuildSection, found: Iterable[str], why: str, report: Report) -> None:
    """Takes the sources that lie in the repository where nothing says which are compiled."""
    for source in found:
        is_cuda = source.endswith(CUDA_SUFFIXES)
        options, key = (section.cuda, "glue: cuda: ") if is_cuda else (section.host, "glue: ")
        options.sources.append(source)
        report.carried(f"source {source}", "the repository", f"build: {key}sources", why)


def add_cuda_macros(section: BuildSection, facts: Survey, report: Report) -> None:
    """Defines the macros that tell the sources of CUDA, where they were defined for every build."""
    for name in facts.cuda_macros:
        if name in section.host.defines:
            section.cuda.defines[name] = section.host.defines.pop(name)
            report.retarget(f"macro {name}", "build: glue: cuda: defines")
        elif name not in section.cuda.defines and section.cuda.sources:
            section.cuda.defines[name] = None
            report.carried(
                f"macro {name}", "a condition in the sources", "build: glue: cuda: defines"
            )


def submodules(root: Path) -> list[str]:
    """The folders of git's submodules, relative to `root`, which may be below git's top folder."""
    top = next((one for one in (root, *root.parents) if (one / ".git").exists()), root)
    file = top / ".gitmodules"
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    paths = [top / path.strip() for path in re.findall(r"(?m)^\s*path\s*=\s*(.+)$", text)]
    return [str(path.relative_to(root)) for path in paths if path.is_relative_to(root)]


def empty_submodule(root: Path, path: str) -> str:
    """The submodule that holds `path` and is not checked out; "" if there is none."""
    for module in submodules(root):
        folder = root / module
        is_empty = not folder.is_dir() or not any(folder.iterdir())
        if f"{path}/".startswith(f"{module}/") and is_empty:
            return module
    return ""


class _Joiner:
    """Adds one extension: what only the machine with CUDA saw goes into `glue: cuda:`."""

    def __init__(
        self,
        extension: SeenExtension,
        without: SeenExtension | None,
        *,
        root: Path,
        section: BuildSection,
        report: Report,
    ) -> None:
        self._extension = extension
        self._without = without
        self._root = root
        self._section = section
        self._report = report
        name = extension.name or (without and without.name) or "an extension"
        self._place = f"{extension.place}: {name}"
        #: Whether only a machine without CUDA has the value that is being added.
        self._is_without_alone = False

    def join(self) -> None:
        for source in self._each(lambda extension: extension.sources):
            self._source(*source)
        for path in self._each(lambda extension: extension.include):
            self._include(*path)
        for macro in self._each(lambda extension: extension.macros):
            self._macro(*macro)
        for name, is_cuda in self._each(lambda extension: extension.undefined):
            self._flag(f"-U{name}", is_cuda)
        for flag, is_cuda in self._each(lambda extension: _words(extension.flags)):
            self._host_flag(flag, is_cuda)
        if self._extension.is_cuda:
            for flag in _words(self._extension.nvcc_flags):
                self._nvcc_flag(flag)
        for library in self._each(lambda extension: extension.libraries):
            self._library(*library)
        for flag, is_cuda in self._each(lambda extension: _words(extension.link_flags)):
            self._link_flag(flag, is_cuda)
        self._others()

    def _each(
        self, values: Callable[[SeenExtension], Sequence[_Value]]
    ) -> Iterator[tuple[_Value, bool]]:
        """The values, each with whether only a machine with CUDA has it."""
        mine = [value for value in values(self._extension) if value]
        others = values(self._without) if self._without else ()
        common = [value for value in others if value]
        for value in dict.fromkeys(mine):
            yield value, value not in common
        # What only a machine without CUDA has is part of the glue for the CPU.
        self._is_without_alone = True
        yield from ((value, False) for value in dict.fromkeys(common) if value not in mine)
        self._is_without_alone = False

    def _at(self, is_cuda: bool) -> Options:
        return self._section.cuda if is_cuda else self._section.host

    def _key(self, key: str, *, is_cuda: bool) -> str:
        return f"build: glue: cuda: {key}" if is_cuda else f"build: glue: {key}"

    def _from(self, is_cuda: bool) -> str:
        if self._is_without_alone:
            return f"{self._place}, {WITHOUT_ALONE}"
        is_needed = is_cuda and self._without is not self._extension
        return f"{self._place}, {WITH_ALONE}" if is_needed else self._place

    def _carried(self, what: str, is_cuda: bool, target: str, why: str = "") -> None:
        self._report.carried(what, self._from(is_cuda), target, why)
        if self._is_without_alone:
            why = "the glue for CUDA has it too; where that is wrong, let a macro decide"
            self._report.left(what, self._from(is_cuda), why)

    def _source(self, source: str, is_cuda: bool) -> None:
        what = f"source {source}"
        if source.startswith(("/", "..")) or not (self._root / source).is_file():
            why = "it is no file in the folder of build_matrix.yaml"
            self._report.left(what, self._from(is_cuda), why)
        elif source in self._section.wrapped:
            new = self._section.wrapped[source]
            self._add(self._section.host.sources, new)
            self._add(self._section.cuda.sources, source)
            self._section.cuda.defines[_BY_NVCC] = None
            why = f"without CUDA it is compiled as C++, by {new}, which includes it"
            self._report.carried(what, self._place, self._key("sources", is_cuda=True), why)
        elif source.endswith(CUDA_SUFFIXES):
            self._add(self._section.cuda.sources, source)
            key = self._key("sources", is_cuda=True)
            self._report.carried(what, self._from(is_cuda), key)
        elif source.endswith(HOST_SUFFIXES) and self._is_without_alone:
            self._source_without_cuda(source)
        elif source.endswith(HOST_SUFFIXES):
            self._add(self._at(is_cuda).sources, source)
            self._carried(what, is_cuda, self._key("sources", is_cuda=is_cuda))
        else:
            self._report.left(what, self._from(is_cuda), "only C++ and CUDA are compiled")

    def _source_without_cuda(self, source: str) -> None:
        """Leaves a source out of the glue for CUDA, in which others take its place."""
        new = f"{source.rpartition('.')[0]}_host.cpp"
        if (self._root / new).exists():
            self._add(self._section.host.sources, source)
            self._carried(
                f"source {source}", is_cuda=False, target=self._key("sources", is_cuda=False)
            )
            return
        self._section.alone[source] = new
        self._add(self._section.host.sources, new)
        self._section.cuda.defines[_BY_NVCC] = None
        why = f"by {new}, which includes it where no CUDA is compiled"
        key = self._key("sources", is_cuda=False)
        self._report.carried(f"source {source}", self._from(is_cuda=False), key, why)

    def _include(self, path: str, is_cuda: bool) -> None:
        what = f"include folder {path}"
        if path.startswith("$"):
            self._report.left(what, self._from(is_cuda), "only a run of CMake tells where it is")
        elif path.startswith(("/", "..")):
            why = "it is outside the folder of build_matrix.yaml"
            self._report.left(what, self._from(is_cuda), why)
        elif not (self._root / path).is_dir():
            module = empty_submodule(self._root, path)
            why = f"submodule {module} is not checked out" if module else "there is no such folder"
            self._report.left(what, self._from(is_cuda), why)
        else:
            self._add(self._at(is_cuda).include, path)
            self._carried(what, is_cuda, self._key("include", is_cuda=is_cuda))

    def _macro(self, macro: tuple[str, str | None], is_cuda: bool) -> None:
        name, value = macro
        what = f"macro {name}" if value is None else f"macro {name}={value}"
        if "PYTHON" in name or name in ("TORCH_EXTENSION_NAME", "Py_LIMITED_API"):
            self._report.needless(what, self._from(is_cuda), "no binary refers to Python")
        elif name == "_GLIBCXX_USE_CXX11_ABI":
            self._report.needless(what, self._from(is_cuda), "torchship gives what the torch needs")
        elif not _IDENTIFIER.fullmatch(name) or not _PLAIN.fullmatch(value or ""):
            why = "the matrix takes letters, digits and @%+=:./,- alone; write it into a header"
            self._report.left(what, self._from(is_cuda), why)
        else:
            is_for_cuda = is_cuda and name not in self._section.host.defines
            self._at(is_for_cuda).defines[name] = value
            self._carried(what, is_cuda, self._key("defines", is_cuda=is_for_cuda))

    def _host_flag(self, flag: str, is_cuda: bool) -> None:
        if standard := re.fullmatch(r"-?-std=(?:c|gnu)\+\+(20|2a|23|2b)", flag):
            self._at(is_cuda).std = 23 if standard[1] in ("23", "2b") else 20
            self._carried(f"flag {flag}", is_cuda, self._key("std", is_cuda=is_cuda))
        elif not self._is_elsewhere(flag, is_cuda):
            self._flag(flag, is_cuda)

    def _flag(self, flag: str, is_cuda: bool) -> None:
        # `flags` of `glue: cuda:` are nvcc's, so a host's flag is for both kinds of glue.
        self._add(self._section.host.flags, flag)
        why = "for the CPU's glue too" if is_cuda and self._without is not self._extension else ""
        self._carried(f"flag {flag}", is_cuda, self._key("flags", is_cuda=False), why)

    def _nvcc_flag(self, flag: str) -> None:
        if re.match(r"-O\d|-std=|--std", flag):
            self._report.needless(
                f"nvcc flag {flag}", self._place, "torchship gives nvcc -O3 and -std"
            )
        elif not self._is_elsewhere(flag, is_cuda=True, kind="nvcc flag"):
            self._add(self._section.cuda.flags, flag)
            self._report.carried(
                f"nvcc flag {flag}", self._from(is_cuda=True), self._key("flags", is_cuda=True)
            )

    def _is_elsewhere(self, flag: str, is_cuda: bool, kind: str = "flag") -> bool:
        """Whether a flag has a key of its own, or none."""
        what = f"{kind} {flag}"
        if flag.startswith("-D") and not any(re.match(p, flag) for p in _NEEDLESS):
            name, mark, value = flag[2:].partition("=")
            self._macro((name, value if mark else None), is_cuda)
        elif flag.startswith("-I"):
            self._include(flag[2:], is_cuda)
        elif flag.startswith("-l") and flag not in ("-lgomp", "-lineinfo"):
            self._library(flag[2:], is_cuda)
        elif why := next((w for p, w in _NEEDLESS.items() if re.match(p, flag)), ""):
            self._report.needless(what, self._from(is_cuda), why)
        elif why := next((w for p, w in _REFUSED.items() if re.match(p, flag)), ""):
            self._report.left(what, self._from(is_cuda), why)
        else:
            return False
        return True

    def _library(self, name: str, is_cuda: bool) -> None:
        what = f"library {name}"
        name = re.sub(r"^(lib)?(.*?)(\.so.*|\.a)?$", r"\2", name)
        if _PROVIDED.fullmatch(name):
            why = "torchship links it, or torch brings it"
            self._report.needless(what, self._from(is_cuda), why)
        elif name in CUDA_LIBRARIES or name in SYSTEM_LIBRARIES:
            is_for_cuda = is_cuda or name in CUDA_LIBRARIES
            self._add(self._at(is_for_cuda).libraries, name)
            self._carried(what, is_cuda, self._key("libraries", is_cuda=is_for_cuda))
        else:
            why = (
                "torch for CUDA brings it, and no binary is linked to it: open it by dlopen()"
                if name in _OF_TORCH
                else "neither the system nor torch brings it; compile its sources with yours"
            )
            self._report.left(what, self._from(is_cuda), why)

    def _link_flag(self, flag: str, is_cuda: bool) -> None:
        if flag.startswith("-l") and flag != "-lgomp":
            self._library(flag[2:], is_cuda)
        elif re.match(r"-fopenmp$|-lgomp$|-s$|-Wl,-rpath|-shared$", flag):
            why = "torchship links what torch's headers need, and every object the same way"
            self._report.needless(f"link flag {flag}", self._from(is_cuda), why)
        else:
            self._report.left(f"link flag {flag}", self._from(is_cuda), "the matrix has none")

    def _others(self) -> None:
        for name, is_cuda in self._each(lambda extension: (extension.name,)):
            why = "torch.ops takes its place"
            self._report.needless(f"module {name}", self._from(is_cuda), why)
        for folder, is_cuda in self._each(lambda extension: extension.library_folders):
            what = f"library folder {folder}"
            if re.search(r"/cuda(-[\d.]+)?/", f"{folder}/"):
                why = "torchship finds the toolkit's libraries"
                self._report.needless(what, self._from(is_cuda), why)
            else:
                why = "libraries of other projects are not linked; compile their sources with yours"
                self._report.left(what, self._from(is_cuda), why)
        for name, is_cuda in self._each(lambda extension: extension.objects):
            why = "it is compiled already; compile its source with yours"
            self._report.left(f"object {name}", self._from(is_cuda), why)
        for _, is_cuda in self._each(lambda extension: (extension.py_limited_api,)):
            why = "no binary refers to Python, so one wheel serves every Python"
            self._report.needless("py_limited_api", self._from(is_cuda), why)
        for argument, is_cuda in self._each(lambda extension: extension.unread):
            why = "only a run of setup.py shows what it is and does"
            self._report.left(f"argument {argument}", self._from(is_cuda), why)

    @staticmethod
    def _add(values: list[str], value: str) -> None:
        if value not in values:
            values.append(value)


def _words(flags: Sequence[str]) -> list[str]:
    """The flags, each with its value: `-Xcompiler`, `-fPIC` -> `-Xcompiler=-fPIC`."""
    words = []
    remaining = iter(flags)
    for flag in remaining:
        if flag in _WITH_WORD:
            value = next(remaining, "")
            joint = "" if flag in ("-I", "-D", "-U", "-L", "-l", "-isystem", "-include") else "="
            words.append(f"{flag}{joint}{value}")
        elif flag:
            words.append(flag.strip())
    return words
