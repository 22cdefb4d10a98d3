"""Says in what the machine code of two builds of a shared object differs.

    python measurements/compare_machine_code.py OLD.so NEW.so [--renamed OLD=NEW ...]

GPU code is compared kernel by kernel, by the instructions that cuobjdump prints, for every
architecture. CPU code is compared function by function, by objdump: addresses are left out, and a
function of a stripped object is one of its sections. The exit code is 0 if nothing differs.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import re
import subprocess
import sys
from pathlib import Path

#: The inline namespaces in kernels' names say in which file a kernel is, no more.
FILE_NAMESPACE = re.compile(r"\b[a-z_]+_cu::")
FUNCTION = re.compile(r"^\t\tFunction : (\S+)$")
ARCHITECTURE = re.compile(r"^arch = (\S+)$")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.*?;)")
HOST_INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\t(.*)$")
#: What the place of code or data in the file decides.
PLACE = re.compile(r"\b[0-9a-f]+ <[^>]*>|#.*$|-?0x[0-9a-f]+\(%rip\)")


def print_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read_kernels(path: Path, renamed: dict[str, str]) -> dict[str, str]:
    """The hash of the instructions of each kernel, by architecture and name."""
    kernels: dict[str, str] = {}
    architecture = name = ""
    instructions: list[str] = []

    def store() -> None:
        if name:
            digest = hashlib.sha256("\n".join(instructions).encode()).hexdigest()
            kernels[f"{architecture} {name}"] = digest

    for line in print_of("cuobjdump", "-sass", str(path)).splitlines():
        if match := ARCHITECTURE.match(line):
            store()
            name, instructions = "", []
            architecture = match[1]
        elif match := FUNCTION.match(line):
            store()
            name, instructions = plain_name(match[1], renamed), []
        elif match := INSTRUCTION.search(line):
            instructions.append(match[1])
    store()
    return kernels


def plain_name(mangled: str, renamed: dict[str, str]) -> str:
    """The demangled name of a kernel, without the namespace of its file."""
    name = print_of("c++filt", mangled).strip()
    name = FILE_NAMESPACE.sub("", name)
    for old, new in renamed.items():
        name = name.replace(old, new)
    return name


def read_host_code(path: Path) -> collections.Counter[str]:
    """How often each block of instructions occurs; a block ends where control leaves it."""
    blocks: collections.Counter[str] = collections.Counter()
    block: list[str] = []
    for line in print_of("objdump", "-d", "--no-show-raw-insn", str(path)).splitlines():
        match = HOST_INSTRUCTION.match(line)
        if match is None:
            continue
        text = " ".join(PLACE.sub("", match[1]).split())
        if re.match(r"(nop|data16|xchg %ax,%ax|cs nop)", text):
            continue  # fills the space between functions
        block.append(text)
        if re.match(r"(ret|jmp|ud2|hlt)\b", text):
            blocks["\n".join(block)] += 1
            block = []
    return blocks


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--renamed", nargs="*", default=[], metavar="OLD=NEW")
    arguments = parser.parse_args()
    renamed = dict(pair.split("=", 1) for pair in arguments.renamed)
    differs = False
    if "cuda" in arguments.new.name:
        old = read_kernels(arguments.old, renamed)
        new = read_kernels(arguments.new, {})
        same = [name for name in old if old[name] == new.get(name)]
        print(f"GPU code: {len(same)} kernels are the same, of {len(old)} and {len(new)}")
        for name in sorted({*old, *new} - {*same}):
            differs = True
            state = "gone" if name not in new else "new" if name not in old else "differs"
            print(f"  {state}: {name}")
    old_host = read_host_code(arguments.old)
    new_host = read_host_code(arguments.new)
    same_host = sum((old_host & new_host).values())
    print(
        f"CPU code: {same_host} blocks are the same, of {sum(old_host.values())} and "
        f"{sum(new_host.values())}"
    )
    return 1 if differs or old_host != new_host else 0


if __name__ == "__main__":
    sys.exit(main())
