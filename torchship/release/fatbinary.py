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
from pathlib import Path

HERE, GIVEN = Path(__file__).resolve().parent, sys.argv[1:]
later = [word.partition("=sm_")[2] for word in GIVEN if word.startswith("--assemble=sm_")]
dropped = [word.partition("=")[2] for word in GIVEN if word.startswith("--drop=")]
# Older drivers cannot read what CUDA 13 compresses by default. A wheel compresses plain PTX better
# than PTX that they can read.
words, ptx = ["--compress-mode=none"], ""
for word in GIVEN:
    if image := re.fullmatch(r"--?image=profile=(sm|compute)_(\w+),file=(.*)", word):
        kind, number, file = image.groups()
        ptx = file if kind == "compute" else ptx
        if f"{kind}_{number}" not in dropped:
            code = "elf" if kind == "sm" else "ptx"
            words.append(f"--image3=kind={code},sm={number},file={file}")
    elif not word.startswith(("--assemble=", "--drop=")):
        words.append(word)
with tempfile.TemporaryDirectory() as made:
    for number in later:
        if not ptx:
            text = f"--assemble=sm_{number} needs PTX, got none; add --cuda-include-ptx"
            sys.exit(f"fatbinary: {text}")
        file = f"{made}/{number}.cubin"
        subprocess.run([HERE / "ptxas", "-O3", f"-arch=sm_{number}", ptx, "-o", file], check=True)
        words.append(f"--image3=kind=elf,sm={number},file={file}")
    sys.exit(subprocess.run([HERE / "fatbinary.nvidia", *words]).returncode)
