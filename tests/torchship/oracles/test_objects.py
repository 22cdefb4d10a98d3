"""What the reader of ELF files finds in drawn and in real objects is what pyelftools finds."""

from __future__ import annotations

import random
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest
from draws import differences, seeds

from torchship.judge.reading.elf import Elf, ElfBoundError

pytest.importorskip("elftools")
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

SITE = Path(sysconfig.get_path("purelib"))
#: pyelftools takes a minute for libtorch_cpu.so.
LARGEST = 8 << 20
_OF_BFD_ALONE = ("-Wl,-z,nodefaultlib", "-Wl,-z,separate-code")
_SECTION_FIELDS = ((40, 8), (58, 6))  # in the ELF header


@dataclass(frozen=True)
class Facts:
    """What both tell of a file."""

    needed: tuple[str, ...]
    runpath: str
    soname: str
    forbids_dlopen: bool
    searches_default_folders: bool
    static_tls: int
    executable_stack: bool | None
    alignment: int
    version_needs: frozenset[tuple[str, str]]
    version_definitions: frozenset[str]
    strong: frozenset[str]  #: the strong undefined symbols
    symbols: frozenset[tuple[str, bool, bool]]  #: (name, defined, weak)


def ours(path: Path) -> Facts:
    with Elf(path) as elf:
        return Facts(
            needed=elf.header.needed,
            runpath=elf.header.runpath,
            soname=elf.header.soname,
            forbids_dlopen=elf.header.forbids_dlopen,
            searches_default_folders=elf.header.searches_default_folders,
            static_tls=elf.header.static_tls,
            executable_stack=elf.header.executable_stack,
            alignment=elf.header.alignment,
            version_needs=frozenset(elf.version_needs()),
            version_definitions=frozenset(elf.version_definitions()),
            strong=frozenset(reference.name.decode() for reference in elf.references()),
            symbols=frozenset((name.decode(), d, w) for name, d, w in elf.symbols()),
        )


def theirs(path: Path) -> Facts:
    with path.open("rb") as file:
        elf = ELFFile(file)
        dynamic = next(s for s in elf.iter_sections() if isinstance(s, DynamicSection))
        tags = [tag.entry for tag in dynamic.iter_tags()]
        strings = {
            name: [getattr(t, name.lower()) for t in dynamic.iter_tags() if t.entry.d_tag == tag]
            for name, tag in (
                ("NEEDED", "DT_NEEDED"),
                ("RUNPATH", "DT_RUNPATH"),
                ("RPATH", "DT_RPATH"),
                ("SONAME", "DT_SONAME"),
            )
        }
        numbers = {tag.d_tag: tag.d_val for tag in tags}
        flags, flags_1 = numbers.get("DT_FLAGS", 0), numbers.get("DT_FLAGS_1", 0)
        segments = list(elf.iter_segments())
        tls = sum(s["p_memsz"] for s in segments if s["p_type"] == "PT_TLS")
        stacks = [bool(s["p_flags"] & 1) for s in segments if s["p_type"] == "PT_GNU_STACK"]
        loads = [s["p_align"] for s in segments if s["p_type"] == "PT_LOAD"]
        symbols = {
            (
                symbol.name,
                symbol["st_shndx"] != "SHN_UNDEF",
                symbol["st_info"]["bind"] == "STB_WEAK",
            )
            for section in elf.iter_sections()
            if isinstance(section, SymbolTableSection) and section["sh_type"] == "SHT_DYNSYM"
            for symbol in section.iter_symbols()
            if symbol.name and symbol["st_info"]["bind"] != "STB_LOCAL"
        }
        needs, definitions = set(), set()
        for section in elf.iter_sections():
            if isinstance(section, GNUVerNeedSection):
                needs |= {(n.name, v.name) for n, vs in section.iter_versions() for v in vs}
            if isinstance(section, GNUVerDefSection):
                definitions |= {next(names).name for _, names in section.iter_versions()}
        return Facts(
            needed=tuple(strings["NEEDED"]),
            runpath=next(iter(strings["RUNPATH"] or strings["RPATH"]), ""),
            soname=next(iter(strings["SONAME"]), ""),
            forbids_dlopen=bool(flags_1 & 0x40),
            searches_default_folders=not flags_1 & 0x800,
            static_tls=tls if flags & 0x10 else 0,
            executable_stack=stacks[0] if stacks else None,
            alignment=min(loads, default=0),
            version_needs=frozenset(needs),
            version_definitions=frozenset(definitions),
            strong=frozenset(n for n, is_defined, weak in symbols if not (is_defined or weak)),
            symbols=frozenset(symbols),
        )


def exported_with_versions(path: Path) -> dict[tuple[str, str], bool]:
    """Whether each (exported name, version) is the default one, as pyelftools has it."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        versions = {
            verdef.entry.vd_ndx: next(names).name
            for section in elf.iter_sections()
            if isinstance(section, GNUVerDefSection)
            for verdef, names in section.iter_versions()
        }
        numbers: list[object] = []
        for section in elf.iter_sections():
            if isinstance(section, GNUVerSymSection):
                numbers = [symbol["ndx"] for symbol in section.iter_symbols()]
        exported = {}
        for section in elf.iter_sections():
            if not isinstance(section, SymbolTableSection) or section["sh_type"] != "SHT_DYNSYM":
                continue
            for at, symbol in enumerate(section.iter_symbols()):
                is_exported = symbol["st_shndx"] != "SHN_UNDEF" and symbol.name
                number = numbers[at] if numbers else None
                if is_exported and symbol["st_info"]["bind"] != "STB_LOCAL":
                    raw = number if isinstance(number, int) else 0
                    version = versions.get(raw & 0x7FFF, "") if raw else ""
                    exported[symbol.name, version] = not raw & 0x8000
        return exported


class _Object:
    """One drawn object: what it has, in assembler, and how it is linked."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.defined = [f"defined_{n}" for n in range(draw.choice((0, 0, 1, 3, 40)))]
        self.undefined = [f"undefined_{n}" for n in range(draw.choice((0, 1, 2, 30)))]
        self.weak = [f"weak_{n}" for n in range(draw.choice((0, 0, 1, 5)))]
        self.lines = ['.section .note.GNU-stack,"",%progbits\n.data']
        for name in self.undefined:
            self.lines.append(f".quad {name}")
        self.lines += [f".weak {name}\n.quad {name}" for name in self.weak]
        self.lines.append(".text")
        for name in self.defined:
            kind = draw.choice((".globl", ".globl", ".globl", ".weak"))
            self.lines.append(f"{kind} {name}\n.type {name},%function\n{name}: ret")
            if draw.random() < 0.2:
                self.lines.append(f".hidden {name}")
        if draw.random() < 0.2:
            size = draw.choice((4, 64, 500))
            self.lines.append(f'.section .tbss,"awT",%nobits\n.globl var\nvar: .zero {size}')
            if draw.random() < 0.5:
                self.lines.append(".text\nmovq var@gottpoff(%rip), %rax")
        self.flags = [f"-Wl,--hash-style={draw.choice(('sysv', 'gnu', 'both'))}"]
        self.flags += draw.sample(
            (
                "-Wl,-z,nodlopen",
                "-Wl,-z,nodefaultlib",
                "-Wl,-z,execstack",
                "-Wl,-z,now",
                "-Wl,-soname,libdrawn.so.1",
                "-Wl,-rpath,$ORIGIN/../lib:/opt/lib",
                "-Wl,--disable-new-dtags",
                "-Wl,-z,max-page-size=0x10000",
                "-Wl,-z,separate-code",
                "-Wl,--no-as-needed,-lm",
                "-s",
            ),
            draw.choice((0, 1, 2, 4)),
        )
        self.linker = draw.choice(("bfd", "bfd", "gold"))
        self.script = draw.choice(("", "", "hidden", "version", "versions"))
        if self.linker == "gold":
            self.script = draw.choice(("", "hidden"))
            self.flags = [flag for flag in self.flags if flag not in _OF_BFD_ALONE]
        self.loses_section_headers = draw.random() < 0.3

    def build(self, path: Path) -> None:
        scripts = {
            "hidden": "{ local: *; };",
            "version": "V_1 { global: *; };",
            "versions": "V_1 { global: *_0; }; V_2 { global: *; } V_1;",
        }
        flags = ["-shared", "-nostdlib", f"-fuse-ld={self.linker}", *self.flags]
        if self.script:
            file = path.with_suffix(".map")
            file.write_text(scripts[self.script])
            flags.append(f"-Wl,--version-script={file}")
        command = ["gcc", "-xassembler", "-", "-o", str(path), *flags]
        source = "\n".join(self.lines) + "\n"
        subprocess.run(command, input=source, text=True, check=True, capture_output=True)


def without_section_headers(path: Path) -> Path:
    """The file as `sstrip` leaves it."""
    content = bytearray(path.read_bytes())
    for at, size in _SECTION_FIELDS:
        content[at : at + size] = bytes(size)
    stripped = path.with_suffix(".stripped.so")
    stripped.write_bytes(content)
    return stripped


def compare(path: Path, known: Facts) -> list[str]:
    """The facts of a file in which our reader differs from what is known of it."""
    found = ours(path)
    names = Facts.__dataclass_fields__
    pairs = ((name, getattr(found, name), getattr(known, name)) for name in names)
    return [f"{path.name}: {name}: {a} is {b}" for name, a, b in pairs if a != b]


def lookups_that_differ(path: Path, exported: dict[tuple[str, str], bool]) -> list[str]:
    """The lookups that find what is not exported, or miss what is."""
    wrong = []
    names = {name for name, _ in exported}
    with Elf(path) as elf:
        for (name, version), is_default in exported.items():
            if not elf.defines(name, version=version):
                wrong.append(f"{path.name}: {name}@{version} is not found")
            if is_default and not elf.defines(name):
                wrong.append(f"{path.name}: {name} is not found")
            if elf.defines(f"{name}x") != (f"{name}x" in names):
                wrong.append(f"{path.name}: {name}x is found")
            if version and elf.defines(name, version="V_9"):
                wrong.append(f"{path.name}: {name}@V_9 is found")
    return wrong


@pytest.mark.skipif(sysconfig.get_platform() != "linux-x86_64", reason="the assembler is x86-64's")
def test_drawn_objects_are_read_as_pyelftools_reads_them(tmp_path: Path) -> None:
    wrong: list[str] = []
    for seed in seeds(80):
        drawn = _Object(seed)
        path = tmp_path / f"{seed}.so"
        drawn.build(path)
        known = theirs(path)
        file = without_section_headers(path) if drawn.loses_section_headers else path
        if drawn.loses_section_headers and not (known.needed or known.symbols):
            continue
        wrong += compare(file, known)
        wrong += lookups_that_differ(file, exported_with_versions(path))
        for made in tmp_path.iterdir():
            made.unlink()
    assert not wrong, differences(wrong)


@pytest.mark.slow
def test_real_objects_are_read_as_pyelftools_reads_them() -> None:
    files = sorted(path for path in SITE.rglob("*.so*") if path.is_file())
    files = [path for path in files if path.stat().st_size < LARGEST]
    drawn = seeds(25)
    chosen = random.Random(drawn.start).sample(files, min(len(drawn), len(files)))
    assert chosen
    wrong: list[str] = []
    for path in chosen:
        if path.read_bytes()[:4] != b"\x7fELF":
            continue
        try:
            wrong += compare(path, theirs(path))
            wrong += lookups_that_differ(path, exported_with_versions(path))
        except ElfBoundError as error:
            wrong.append(f"{path.name}: {error}")
    assert not wrong, differences(wrong)
