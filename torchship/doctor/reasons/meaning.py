"""What a code or a message means, in words, and what the symbol in a message belongs to."""

from __future__ import annotations

import os
import re
import select
import stat
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ...judge.project import Record
from ...judge.reading.binary import is_symbol_of_torch, symbol_flavour
from ...judge.reading.elf import Elf, ElfError
from ...judge.reading.layouts import LAYOUTS, symbol_range
from ...judge.records import NOWHERE, TorchInstall, dotted
from ...judge.rules import CODES
from ...judge.target import Target
from ...judge.text import is_file, list_names, printable, quoted, read_table
from ...judge.words import codes, messages, render
from ...judge.words.codes import Code
from ..environment import pythons
from ..environment.owner import find_owner
from ..environment.targets import files_named
from .demangle import qualified_name

#: A path, a library or words of the loader of Windows or macOS.
_OF_OTHER_SYSTEM = re.compile(
    r"\b[A-Za-z]:\\|\.dll\b|\.pyd\b|\.dylib\b|-darwin\.so\b|DLL load failed|\[WinError \d"
    r"|Library not loaded: |in flat namespace"
)
_IN_PACKAGES = re.compile(r"(/[^\s'\":,()]{1,1000}/(?:site|dist)-packages)/")
_MEANINGS = "meanings.json"
#: Of an undefined symbol of torch: which of them it is depends on the torch.
_OF_SYMBOLS = (codes.OTHER_CXX_ABI, codes.TORCH_LACKS_SYMBOLS)
_MAX_SHOWN = 300
#: How long to wait for the first byte of a pipe that nobody asked to be read.
_SECONDS_TO_START = 1.0


class Meaning(Record):
    """What is written about a code."""

    code: Code
    why: str
    fix: str
    fault: int | None = None  #: the class in docs/fails/codes/index.md


def meaning_of(code: str) -> Meaning:
    """What is written about a code. Raises KeyError for one that does not exist."""
    known = CODES[code]
    if known.why:
        return Meaning(known, known.why, known.fix, known.fault)
    entry = read_table(__package__, _MEANINGS)[code]
    return Meaning(known, entry["why"], entry["fix"], entry.get("fault"))


def lines_of_meaning(meaning: Meaning) -> list[str]:
    return [
        f"{meaning.code}  {meaning.code.heading}",
        *_wrapped("why:", meaning.why),
        *_wrapped("to fix:", meaning.fix),
    ]


def _wrapped(label: str, sentences: str) -> list[str]:
    start = f"{label:<10}"
    return textwrap.wrap(
        sentences,
        render.width(),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


#: How a fix begins that is to ask the doctor about what the message names.
_ASK = "Ask the doctor about"


class Diagnosis(Record, kw_only=True):
    """What a message means."""

    line: str  #: the line that tells it
    code: Code
    symbol: str  #: the undefined symbol; "" if there is none
    about_symbol: str  #: one sentence on it, or ""
    about_cause: str  #: one sentence on what else can be the cause, or ""
    about_library: str  #: one sentence on the library that is to define it, if it is here, or ""
    file: str  #: the shared object that it blames, as written; ""
    other_python: str  #: the Python of another environment in which it happened; ""
    packages: tuple[str, ...]  #: that a traceback passes through, innermost first

    @property
    def is_known(self) -> bool:
        return self.code is not codes.MESSAGE_UNKNOWN


def diagnose(target: Target, content: str, torch: TorchInstall | None) -> Diagnosis:
    """What a message or a log means for a target, beside this torch. At most
    `messages.MAX_INPUT` is read."""
    if re.fullmatch(r"\s*_Z\w+\s*", content[: messages.MAX_LINE]):
        content = f"undefined symbol: {content.strip()}"
    lines = messages.lines_of(content)
    message, line = next(messages.matches(lines), (None, lines[-1] if lines else ""))
    symbol = messages.symbol_in(line)
    code = message.code if message else codes.MESSAGE_UNKNOWN
    blamed = next((file for one in (line, *reversed(lines)) if (file := messages.file_in(one))), "")
    beside = _code_of_symbol(symbol, torch) if code in _OF_SYMBOLS else None
    if beside is not None and _place_of(target, blamed) is not None:
        code = beside
    return Diagnosis(
        line=printable(line.strip()[:_MAX_SHOWN]),
        code=code,
        symbol=symbol,
        about_symbol=_describe(symbol, torch) if symbol else "",
        about_cause=_describe_beside(beside, code, torch) or _describe_doubt(symbol, code, torch),
        about_library=_describe_library(target, symbol, messages.library_in(line)),
        file=blamed,
        other_python=next(_pythons_elsewhere(target, (line, *reversed(lines))), ""),
        packages=tuple(_packages_blamed(line, lines)),
    )


def is_of_here(content: str) -> bool:
    """Whether a message can be about this machine: no other system's, and no file that it blames
    or folder of packages in it is missing here."""
    if is_of_other_system(content):
        return False
    for line in messages.lines_of(content):
        blamed = messages.file_in(line)
        if os.sep in blamed and not is_file(Path(blamed)):
            return False
        for match in _IN_PACKAGES.finditer(line):
            if not os.path.isdir(match[1]):  # noqa: PTH112  # Path.is_dir raises
                return False
    return True


def is_of_other_system(content: str) -> bool:
    """Whether a message is one of Windows or macOS."""
    return any(_OF_OTHER_SYSTEM.search(line) for line in messages.lines_of(content))


def _pythons_elsewhere(target: Target, lines: Iterable[str]) -> Iterator[str]:
    """The Pythons of other environments whose packages the lines name, that of the first line
    first; none if that line is of the target."""
    for prefix, site in (place for line in lines for place in messages.sites_in(line)):
        python = pythons.python_elsewhere(target, prefix, site)
        if python is None:
            return
        yield python


def _packages_blamed(line: str, lines: list[str]) -> Iterator[str]:
    """The namespace of a missing operator, which is often its package's name, and the packages
    that a traceback passes through."""
    operator = re.search(r"operator (\w{1,100})::", line)
    if operator:
        yield operator[1]
    yield from (name for name in messages.packages_in(lines) if name != "torch")


def _code_of_symbol(symbol: str, torch: TorchInstall | None) -> Code | None:
    """What is wrong with a symbol beside this torch; None if that cannot be told."""
    if torch is not None and torch.root != NOWHERE and symbol and _defines(torch, symbol):
        return codes.NOT_LINKED
    flavour = symbol_flavour(symbol)
    if torch is None or torch.cxx11_abi is None or flavour is None:
        return None
    return codes.TORCH_LACKS_SYMBOLS if flavour == torch.cxx11_abi else codes.OTHER_CXX_ABI


def _describe_beside(beside: Code | None, code: Code, torch: TorchInstall | None) -> str:
    """What a message about no file of this machine means beside the torch that is here.

    Its code stays that of the message: a message has one answer, on each machine.
    """
    if torch is None or beside in (None, code):
        return ""
    return (
        f"if the error occurred beside torch {torch.version}, which is here, the cause is another: "
        f"{beside}, {beside.heading}"
    )


def _describe_doubt(symbol: str, code: Code, torch: TorchInstall | None) -> str:
    """What a symbol of the new C++ ABI can mean, if the ABI of the torch is not known."""
    is_unknown = torch is None or torch.cxx11_abi is None
    if code is not codes.OTHER_CXX_ABI or not is_unknown or symbol_flavour(symbol) != 1:
        return ""
    return (
        "this symbol is of the new C++ ABI, which torch has by default since 2.7: beside such a "
        f"torch, the cause is another version of torch ({codes.TORCH_LACKS_SYMBOLS}), or the file "
        f"is not linked with torch's libraries ({codes.NOT_LINKED})"
    )


def _describe(symbol: str, torch: TorchInstall | None) -> str:
    """One sentence: the symbol's readable name, which torches have it, and this one."""
    name = qualified_name(symbol)
    sentence = f"{printable(symbol[:_MAX_SHOWN])} is {name}" if name else printable(symbol)
    minors = symbol_range(symbol)
    if minors is not None:
        have = "has" if minors[0] == minors[1] else "have"
        known = f"looked at: torch {dotted(min(LAYOUTS))} to {dotted(max(LAYOUTS))}"
        sentence += f"; torch {_describe_range(*minors)} {have} it ({known})"
    if torch is not None and torch.root != NOWHERE and is_symbol_of_torch(symbol.encode()):
        here = "has it" if _defines(torch, symbol) else "does not have it"
        sentence += f"; torch {torch.version} {here}"
    return sentence


def _describe_library(target: Target, symbol: str, library: str) -> str:
    """Whether the library of this name that a package brought defines the symbol."""
    for place in files_named(target, library) if library and symbol else ():
        owner = find_owner(target, place)
        package = f" of {owner.name} {owner.version}" if owner else ""
        with suppress(ElfError, OSError), Elf(place) as elf:
            verb = "defines it" if elf.defines(symbol) else "does not define it"
            return f"{printable(place)}{package} {verb}"
    return ""


def _describe_range(first: tuple[int, int], last: tuple[int, int]) -> str:
    if first == last:
        return dotted(first)
    if last == max(LAYOUTS):
        return f"{dotted(first)} and newer"
    if first == min(LAYOUTS):
        return f"{dotted(last)} and older"
    return f"{dotted(first)} to {dotted(last)}"


def _defines(torch: TorchInstall, symbol: str) -> bool:
    """Whether one of torch's own libraries defines the symbol."""
    for name in list_names(torch.lib_dir):
        if name.startswith(("libtorch", "libc10")) and is_file(torch.lib_dir / name):
            with suppress(ElfError, OSError), Elf(torch.lib_dir / name) as elf:
                if elf.defines(symbol):
                    return True
    return False


def lines_of_diagnosis(diagnosis: Diagnosis, *, is_asked: bool = False) -> Iterator[str]:
    """What a message means; `is_asked` if the doctor's own answer on what it names comes below."""
    yield f"message:  {diagnosis.line}"
    if diagnosis.about_symbol:
        yield from _wrapped("symbol:", diagnosis.about_symbol)
    if diagnosis.about_cause:
        yield from _wrapped("or:", diagnosis.about_cause)
    if diagnosis.about_library:
        yield from _wrapped("library:", diagnosis.about_library)
    found = meaning_of(diagnosis.code)
    is_done = is_asked and found.fix.startswith(_ASK)
    yield from lines_of_meaning(found._replace(fix="") if is_done else found)


def lines_on_other_python(diagnosis: Diagnosis, program: str) -> Iterator[str]:
    """How to check the environment in which the error occurred, if it is not the judged one;
    `program` is how the doctor was called."""
    if diagnosis.other_python:
        yield "where:    in an environment that is not the one that was checked; to check it:"
        yield f"          {program} --python {quoted(diagnosis.other_python)}"


def is_message(arguments: Sequence[str]) -> bool:
    """Whether arguments that name no file and no package are a message or a symbol."""
    content = " ".join(arguments)
    if re.fullmatch(r"_Z\w+", content):
        return True
    lines = messages.lines_of(content)
    return next(messages.matches(lines), None) is not None or bool(re.search(r"\s", content))


def read_message(*, is_asked_for: bool) -> str:
    """What standard input holds, "" if it is a terminal or nothing comes.

    `is_asked_for` is set for the argument `-`, which waits for the end. Else a pipe that nobody
    writes to, as jobs of schedulers have it, is given up.
    """
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError, AttributeError):
        return ""
    if not is_asked_for:
        if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
            return ""
        if not select.select([descriptor], [], [], _SECONDS_TO_START)[0]:
            return ""
    chunks: list[bytes] = []
    left = messages.MAX_INPUT
    while left > 0 and (chunk := os.read(descriptor, min(left, 1 << 16))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks).decode("utf-8", "replace")


def existing_file(target: Target, diagnosis: Diagnosis) -> Path | None:
    """The shared object that the message blames, if it is here: by its path, else by its name."""
    return _place_of(target, diagnosis.file)


def _place_of(target: Target, file: str) -> Path | None:
    if os.sep in file:
        path = Path(file)
        return path if is_file(path) else None
    named = files_named(target, file) if file else []
    return next((path for path in named if is_file(path)), None)
