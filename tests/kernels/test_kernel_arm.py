"""The CPU kernels for Arm: what the compiler makes of the parts that all time is spent in."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest

from lltm_conda.engine.builder import include_dirs

REPO = Path(__file__).resolve().parents[2]
CPU = REPO / "csrc" / "kernels" / "cpu"
INCLUDES = [f"-I{folder}" for folder in include_dirs(REPO / "csrc")]
GXX = "aarch64-linux-gnu-g++"
pytestmark = pytest.mark.skipif(not shutil.which(GXX), reason=f"apt-get install {GXX}")

SOURCE = """
#include "level_headers.h"
#define LLTM_LEVEL tried
#define LLTM_VECTOR_BYTES 16
{level}
#include "simd.h"
#include "tiles.h"
using namespace lltm;
using namespace lltm::tried;
extern "C" {{
void tile(int64_t depth, const float* a, const float* b, float* to) {{
  Tile<float, kTileRows, kTileVectors> sum = {{}};
  multiply<float, kTileRows, kTileVectors>(depth, a, 1, 8, b, 8, sum);
  for (int m = 0; m < kTileRows; ++m) {{
    for (int v = 0; v < kTileVectors; ++v) {{
      store(to + (m * kTileVectors + v) * 4, sum[m][v]);
    }}
  }}
}}
#define CONVERSION(name, From, To) \\
  void name(const From* from, To* to) {{ store(to, load(from)); }}
CONVERSION(widen_float16, float16, float)
CONVERSION(widen_bfloat16, bfloat16, float)
CONVERSION(narrow_float16, float, float16)
CONVERSION(narrow_bfloat16, float, bfloat16)
}}
"""
SVE = """
#define LLTM_MULTIPLIES_BY_SVE
#include <arm_sve.h>
#pragma GCC target("arch=armv8.2-a+sve")
"""
BF16 = '#define LLTM_HAS_BFCVTN\n#pragma GCC target("arch=armv8.2-a+bf16")'


Functions = Callable[[str], dict[str, list[list[str]]]]


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Functions:
    """Compiles for a level, once; gives the instructions of every function, by blocks."""
    return cache(partial(compiled, folder=tmp_path_factory.mktemp("tried")))


def compiled(level: str, folder: Path) -> dict[str, list[list[str]]]:
    """The instructions of every function, by blocks: a label begins a block."""
    source = folder / "tried.cpp"
    out = folder / "tried.s"
    source.write_text(SOURCE.format(level=level), encoding="utf-8")
    command = [GXX, "-std=c++17", "-O3", "-DNDEBUG", "-fPIC", f"-I{CPU}", *INCLUDES]
    command += ["-S", str(source), "-o", str(out)]
    subprocess.run(command, check=True)
    blocks_of = {}
    assembly = out.read_text(encoding="utf-8")
    function = re.compile(r"^(\w+):\n(.*?)\.cfi_endproc", re.DOTALL | re.MULTILINE)
    instruction = re.compile(r"^\t([a-z]\w*(?:\.\w+)?)", re.MULTILINE)
    for name, body in function.findall(assembly):
        blocks = re.split(r"^\.L\d+:\n", body, flags=re.MULTILINE)
        blocks_of[name] = [instruction.findall(block) for block in blocks]
    return blocks_of


def test_the_products_fill_the_registers(functions: Functions) -> None:
    """16 sums, no spilled register: each of 16 multiply-adds costs 1.75 instructions at most."""
    (loop,) = [block for block in functions("")["tile"] if "fmla" in block]
    loop = loop[: next(i for i, word in enumerate(loop) if word.startswith("b")) + 1]
    assert loop.count("fmla") == 16
    assert len(loop) <= 28
    assert not [word for word in loop if word.startswith("st")]


def test_sve_products_fill_the_registers(functions: Functions) -> None:
    """Of two vectors of any length, likewise: 16 multiply-adds are half of the instructions."""
    blocks = [block for block in functions(SVE)["tile"] if "fmla" in block]
    loop = max(blocks, key=lambda block: block.count("fmla"))
    loop = loop[: next(i for i, word in enumerate(loop) if word.startswith("b")) + 1]
    assert loop.count("fmla") == 16
    assert len(loop) <= 32
    assert not [word for word in loop if word.startswith("st")]


@pytest.mark.parametrize(
    ("level", "conversion", "instruction"),
    [
        ("", "widen_float16", "fcvtl"),
        ("", "widen_bfloat16", "shll"),
        ("", "narrow_float16", "fcvtn"),
        (BF16, "narrow_bfloat16", "bfcvtn"),
    ],
)
def test_a_register_is_converted_by_one_instruction(
    level: str, conversion: str, instruction: str, functions: Functions
) -> None:
    (block,) = functions(level)[conversion]
    assert block == ["ldr", instruction, "str", "ret"]


@pytest.mark.rehearsal
@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc on PATH")
def test_the_device_code_is_that_of_x86(tmp_path: Path) -> None:
    """The same ptxas makes the same bytes, whatever compiles the host's part."""
    cubins = []
    for ccbin in ((), ("-ccbin", GXX, "--target-directory", f"{platform.machine()}-linux")):
        out = tmp_path / f"{len(cubins)}.cubin"
        command = ["nvcc", "-std=c++17", "-O3", "-cubin", "-arch=sm_90", *INCLUDES, *ccbin]
        source = CPU.parent / "cuda" / "step" / "pointwise.cu"
        subprocess.run([*command, "-o", out, source], check=True)
        cubins.append(out.read_bytes())
    assert cubins[0] == cubins[1]
