"""Says in what the machine code of two builds differs.

    python -m measurements.compare_machine_code OLD NEW [--renamed OLD=NEW ...]

OLD and NEW are two shared objects, or two folders of object files, which have the names of their
functions. GPU code is compared kernel by kernel, by the instructions that cuobjdump prints, for
every architecture. CPU code is compared by the instructions that objdump prints, without what the
place in the file decides: function by function, or in a shared object, whose names are stripped,
by blocks that end with a jump or a return. The exit code is 0 if nothing differs.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

#: The inline namespaces in kernels' names say in which file a kernel is, no more.
FILE_NAMESPACE = re.compile(r"\b[a-z_]+_cu::|\(anonymous namespace\)::")
KERNEL = re.compile(r"^\t\tFunction : (\S+)$")
ARCHITECTURE = re.compile(r"^arch = (\S+)$")
GPU_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.*?;)")
HOST_FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
HOST_INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\t(.*)$")
#: Fills the space between functions.
FILLER = re.compile(r"(nop|data16|xchg %ax,%ax|cs nop)")
#: What the place of code or data in the file decides.
PLACE = re.compile(r"\b[0-9a-f]+ <[^>]*>|#.*$|-?0x[0-9a-f]+\(%rip\)")
END_OF_BLOCK = re.compile(r"(ret|jmp|ud2|hlt)\b")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def simplify_name(name: str, renamed: Mapping[str, str]) -> str:
    """A demangled name without the namespace of its file, and with its new spelling."""
    name = FILE_NAMESPACE.sub("", name)
    for old, new in renamed.items():
        name = name.replace(old, new)
    return name


def read_kernels(path: Path, renamed: Mapping[str, str]) -> dict[str, str]:
    """The hash of the instructions of each kernel, by architecture and name."""
    instructions: dict[str, list[str]] = {}
    architecture = ""
    current: list[str] = []
    for line in run("cuobjdump", "-sass", str(path)).splitlines():
        if match := ARCHITECTURE.match(line):
            architecture = match[1]
        elif match := KERNEL.match(line):
            current = instructions.setdefault(f"{architecture} {match[1]}", [])
        elif match := GPU_INSTRUCTION.search(line):
            current.append(match[1])
    names = run("c++filt", *(key.split(" ")[1] for key in instructions)).splitlines()
    kernels = {}
    for (key, lines), name in zip(instructions.items(), names, strict=True):
        architecture = key.split(" ")[0]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        kernels[f"{architecture} {simplify_name(name, renamed)}"] = digest
    return kernels


def read_functions(folder: Path, renamed: Mapping[str, str]) -> dict[str, str]:
    """The instructions of each CPU function in a folder of object files."""
    functions: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.o")):
        current: list[str] = []
        for line in run("objdump", "-d", "-C", "--no-show-raw-insn", str(path)).splitlines():
            if match := HOST_FUNCTION.match(line):
                current = functions.setdefault(simplify_name(match[1], renamed), [])
            elif instruction := read_instruction(line):
                current.append(instruction)
    return {name: "\n".join(lines) for name, lines in functions.items()}


def count_blocks(path: Path) -> collections.Counter[str]:
    """How often each block of CPU instructions occurs in a shared object."""
    blocks: collections.Counter[str] = collections.Counter()
    block: list[str] = []
    for line in run("objdump", "-d", "--no-show-raw-insn", str(path)).splitlines():
        if instruction := read_instruction(line):
            block.append(instruction)
            if END_OF_BLOCK.match(instruction):
                blocks["\n".join(block)] += 1
                block = []
    return blocks


def read_instruction(line: str) -> str | None:
    """The instruction of a line of objdump; None if the line holds none."""
    match = HOST_INSTRUCTION.match(line)
    if match is None:
        return None
    instruction = " ".join(PLACE.sub("", match[1]).split())
    return None if FILLER.match(instruction) else instruction


def report(kind: str, old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Prints what differs, and returns whether nothing does."""
    same = [name for name in old if old[name] == new.get(name)]
    print(f"{kind}: {len(same)} are the same, of {len(old)} and {len(new)}")
    for name in sorted({*old, *new} - {*same}):
        state = "gone" if name not in new else "new" if name not in old else "differs"
        print(f"  {state}: {name}")
    return len(same) == len(old) == len(new)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--renamed", nargs="*", default=[], metavar="OLD=NEW")
    arguments = parser.parse_args()
    renamed = dict(pair.split("=", 1) for pair in arguments.renamed)
    if arguments.new.is_dir():
        old_functions = read_functions(arguments.old, renamed)
        new_functions = read_functions(arguments.new, {})
        return 0 if report("CPU functions", old_functions, new_functions) else 1
    is_same = True
    if "cuda" in arguments.new.name:
        old_kernels = read_kernels(arguments.old, renamed)
        is_same = report("kernels", old_kernels, read_kernels(arguments.new, {}))
    old_blocks = count_blocks(arguments.old)
    new_blocks = count_blocks(arguments.new)
    same_blocks = (old_blocks & new_blocks).total()
    print(
        f"blocks of CPU code: {same_blocks} are the same, "
        f"of {old_blocks.total()} and {new_blocks.total()}"
    )
    return 0 if is_same and old_blocks == new_blocks else 1


if __name__ == "__main__":
    sys.exit(main())
