#!/usr/bin/env python3
"""Lets clang use the `fatbinary` of CUDA 13, which no longer takes clang's options:

    -image=profile=sm_90,file=F       becomes  --image3=kind=elf,sm=90,file=F
    -image=profile=compute_90,file=F  becomes  --image3=kind=ptx,sm=90,file=F

This script adds two options:

    --assemble=sm_NN   makes machine code from the PTX, for an architecture that clang does not know
    --drop=NAME        leaves out the image NAME, such as PTX that only --assemble needs

The release tool copies this script into the bin folder of a toolkit, beside ptxas and NVIDIA's own
program, which is renamed to fatbinary.nvidia.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
IMAGE = re.compile(r"--?image=profile=(sm|compute)_(\w+),file=(.*)")
ASSEMBLE = "--assemble=sm_"
DROP = "--drop="
KINDS = {"sm": "elf", "compute": "ptx"}


def main(arguments: Sequence[str]) -> int:
    # Older drivers cannot read what CUDA 13 compresses by default. A wheel compresses plain PTX
    # better than PTX that they can read.
    command = [str(HERE / "fatbinary.nvidia"), "--compress-mode=none"]
    dropped = {word.removeprefix(DROP) for word in arguments if word.startswith(DROP)}
    ptx = ""
    for word in arguments:
        if image := IMAGE.fullmatch(word):
            kind, number, file = image.groups()
            if kind == "compute":
                ptx = file
            if f"{kind}_{number}" not in dropped:
                command.append(f"--image3=kind={KINDS[kind]},sm={number},file={file}")
        elif not word.startswith((ASSEMBLE, DROP)):
            command.append(word)
    assembled = [word.removeprefix(ASSEMBLE) for word in arguments if word.startswith(ASSEMBLE)]
    if assembled and not ptx:
        sys.exit(
            f"fatbinary: --assemble=sm_{assembled[0]} needs PTX, got none; add --cuda-include-ptx"
        )
    with tempfile.TemporaryDirectory() as folder:
        for number in assembled:
            file = f"{folder}/{number}.cubin"
            assemble(ptx, number, file)
            command.append(f"--image3=kind=elf,sm={number},file={file}")
        return subprocess.run(command).returncode


def assemble(ptx: str, number: str, file: str) -> None:
    """Makes machine code for the architecture `sm_NUMBER` from the PTX."""
    command = [str(HERE / "ptxas"), "-O3", f"-arch=sm_{number}", ptx, "-o", file]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
