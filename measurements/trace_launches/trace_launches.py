"""Says whether two builds of the CUDA kernels plan and launch the same, without a GPU.

    python measurements/trace_launches/trace_launches.py OLD NEW [--count N] [--seed N]

OLD and NEW are folders with the object files of a build of the CUDA kernels, as the builder leaves
them in `objects/kernels-cuda13`. Each is linked with fake_cuda.cpp, a CUDA runtime and a cuBLAS
that write down what they are asked to do. Random steps and layers are planned by both; then both
run them, by the same family, on invented addresses. What they launch has to be the same: kernels,
grids, every byte of the arguments, and every argument of cuBLAS. Differing plans are counted by the
families that they name; anything else that differs is printed, and the exit code is 1.

It needs g++, cffi, the headers of CUDA ($CUDA_HOME or /usr/local/cuda), and cuobjdump on the PATH.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import cffi

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tests"))

import kernel_table  # type: ignore[import-not-found]  # noqa: E402

FAKE = """
void fake_describe_device(int mode, int major);
void fake_set_parameters(const char* kernel, const char* sizes);
const char* fake_recorded(void);
void fake_forget(void);
int setenv(const char* name, const char* value, int overwrite);
int unsetenv(const char* name);
"""
BYTES = {5: 2, 6: 4, 7: 8, 15: 2}
"""Bytes of an element, by the number of its `lltm_dtype`."""
LAYER_FAMILIES = ("gemm", "registers", "grid", "cluster")
TF32_MATH = 3
SECTION = re.compile(r"^\.nv\.info\.(\S+)$")
PARAMETER = re.compile(r"Ordinal : (0x[0-9a-f]+)\s+Offset\s*: 0x[0-9a-f]+\s+Size\s*: (0x[0-9a-f]+)")
#: The inline namespaces in kernels' names say in which file a kernel is, no more.
FILE_NAMESPACE = re.compile(r"\d+[a-z_]+_cu(?=\d)")


class Gap(NamedTuple):
    """Bytes of a kernel's parameter that no member of its structure holds."""

    kernel: str
    parameter: int  #: its place among the words of the line, from the end of `s...` on
    first: int
    last: int


GAPS = (
    Gap("backward_strips", 1, 20, 24),  # after Strips::count
    Gap("backward_strips", 1, 28, 32),  # after Copies::count
    Gap("copy_all", 0, 4, 8),
)


def read_parameters(objects: Path) -> dict[str, list[int]]:
    """The sizes of each kernel's parameters, by the kernel's name."""
    sizes: dict[str, dict[int, int]] = {}
    for path in sorted(objects.glob("*_cu.o")):
        text = subprocess.run(
            ["cuobjdump", "-elf", str(path)], check=True, capture_output=True, text=True
        ).stdout
        kernel: dict[int, int] = {}
        for line in text.splitlines():
            if section := SECTION.match(line):
                kernel = sizes.setdefault(section[1], {})
            elif parameter := PARAMETER.search(line):
                kernel[int(parameter[1], 16)] = int(parameter[2], 16)
    return {name: [by[ordinal] for ordinal in sorted(by)] for name, by in sizes.items()}


def mask_gaps(line: str) -> str:
    """A line of the record without bytes that are no argument."""
    words = line.split(" ")
    shared = next((index for index, word in enumerate(words) if re.match(r"s\d+$", word)), None)
    if shared is None:
        return line
    for gap in GAPS:
        if gap.kernel in line:
            index = shared + 1 + gap.parameter
            word = words[index]
            words[index] = word[: 2 * gap.first] + "-" + word[2 * gap.last :]
    return " ".join(words)


class Call(NamedTuple):
    """What one call of a kernel function returned and launched."""

    error: bytes | None
    launches: list[str]


class FakeRuntime(Protocol):
    """The functions of fake_cuda.cpp and of the environment that `FAKE` declares."""

    def fake_describe_device(self, mode: int, major: int) -> None: ...

    def fake_set_parameters(self, kernel: bytes, sizes: bytes) -> None: ...

    def fake_recorded(self) -> object: ...

    def fake_forget(self) -> None: ...

    def setenv(self, name: bytes, value: bytes, overwrite: int) -> int: ...

    def unsetenv(self, name: bytes) -> int: ...


class Build:
    """The kernels of one build, linked with the fakes."""

    def __init__(
        self, ffi: cffi.FFI, fake: FakeRuntime, objects: Path, *, library: Path, fakes: Path
    ) -> None:
        inputs = [*map(str, sorted(objects.glob("*.o"))), str(fakes)]
        subprocess.run(["g++", "-shared", "-o", str(library), *inputs, "-ldl"], check=True)
        self._ffi = ffi
        self._fake = fake
        kernels = ffi.dlopen(str(library))
        self._table = ffi.cast("lltm_kernel_functions*", kernels.lltm_kernel_table())
        #: The family names that LLTM_CUDA_CELL takes, in the order of their numbers.
        self.step_families = self._read_step_families()

    def _read_step_families(self) -> list[str]:
        sizes = self._ffi.new("lltm_step_sizes*", {"batch_size": 1, "state_size": 8})
        execution = self._ffi.new("lltm_execution*")
        plan = self._ffi.new("lltm_step_plan*")
        with force_step(self._fake, "?"):
            error = self._table.step_plan(6, 0, 0, sizes, execution, plan)
        names = re.search(rb"set it to (.*?),? or unset it", self._ffi.string(error))
        assert names is not None
        listed = re.findall(r"\w+", names[1].decode().replace(" or ", " "))
        # The text has them in the order of their numbers.
        return [str(name) for name in listed]

    def call(self, name: str, *arguments: object) -> Call:
        self._fake.fake_forget()
        error = getattr(self._table, name)(*arguments)
        record = self._ffi.string(self._fake.fake_recorded()).decode()
        lines = [FILE_NAMESPACE.sub("", mask_gaps(line)) for line in record.splitlines()]
        return Call(None if error == self._ffi.NULL else self._ffi.string(error), lines)

    def call_pointwise(self, name: str, *arguments: object) -> Call:
        return self.call(f"pointwise_{name}", *arguments)


@contextlib.contextmanager
def force_step(fake: FakeRuntime, family: str) -> Iterator[None]:
    """Forces a family of a step as long as the context lasts."""
    fake.setenv(b"LLTM_CUDA_CELL", family.encode(), 1)
    try:
        yield
    finally:
        fake.unsetenv(b"LLTM_CUDA_CELL")


class Comparison:
    """Draws problems, and compares what the two builds do with them."""

    def __init__(
        self, ffi: cffi.FFI, fake: FakeRuntime, old: Build, new: Build, *, seed: int
    ) -> None:
        self._ffi = ffi
        self._fake = fake
        self._old = old
        self._new = new
        self._random = random.Random(seed)
        self._address = 0
        self._handle = ffi.callback("void*(void)", lambda: ffi.cast("void*", 0xB1A5))
        self._new_plan = ffi.new("lltm_step_plan*")  # of the step that was planned last
        self.counts: collections.Counter[str] = collections.Counter()
        self.differences: list[str] = []

    def run(self) -> None:
        """Compares one random problem."""
        self._address = 1 << 46
        self._fake.fake_describe_device(
            self._random.choice((0, TF32_MATH)), self._random.choice((9, 9, 9, 8, 7))
        )
        dtype = self._random.choice(tuple(BYTES))
        execution = self._ffi.new("lltm_execution*")
        if self._random.random() < 0.9:
            execution.blas_handle = self._handle
        kind = self._random.random()
        if kind < 0.6:
            self._compare_step(dtype, execution)
        elif kind < 0.95:
            self._compare_layer(dtype, execution)
        else:
            self._compare_copies(dtype, execution)

    def _size(self, most: int, multiple: int = 1) -> int:
        """A log-uniform size."""
        size = int(most ** self._random.random())
        return max(multiple, size // multiple * multiple)

    def _pointer(self, absent: float = 0.0) -> object:
        """A new address, mostly aligned; NULL with the probability `absent`."""
        if self._random.random() < absent:
            return self._ffi.NULL
        self._address += 1 << 34
        shift = self._random.choice((2, 4, 8)) if self._random.random() < 0.05 else 0
        return self._ffi.cast("void*", self._address + shift)

    def _fill_pointers(self, arguments: object, absent: dict[str, float]) -> None:
        for name, field in self._ffi.typeof(arguments).item.fields:
            if field.type.kind == "pointer":
                setattr(arguments, name, self._pointer(absent.get(name, 0.0)))

    def _expect_same(self, what: str, old: object, new: object) -> None:
        if old != new:
            self.differences.append(f"{what}\n  old: {old}\n  new: {new}")

    def _compare_step(self, dtype: int, execution: object) -> None:
        multiple = self._random.choice((1, 1, 2, 4, 8, 8, 16))
        sizes = {"batch_size": self._size(4096), "state_size": self._size(4500, multiple)}
        if self._random.random() < 0.75:
            sizes["input_size"] = self._size(4500, multiple)
        sizes["weight_stride"] = sizes["state_size"] + sizes.get("input_size", 0)
        sizes["allow_tf32"] = self._random.randrange(2)
        backward = self._random.randrange(2)
        needs = self._random.randrange(32) if backward else 0
        named = f"dtype {dtype} {'backward' if backward else 'forward'} {sizes}"
        problem = (dtype, backward, needs, self._ffi.new("lltm_step_sizes*", sizes), execution)
        family = self._compare_step_plans(named, problem)
        if self._random.random() < 0.3:
            choices = [f for f in self._new.step_families if f in self._old.step_families]
            with force_step(self._fake, self._random.choice(choices)):
                family = self._compare_step_plans(f"forced, {named}", problem)
        if family in self._old.step_families:
            if sizes["input_size"]:  # of a single step, the plan says whether tf32 is allowed
                sizes["allow_tf32"] = self._new_plan.allow_tf32
            self._launch_step(family, problem, sizes)

    def _compare_step_plans(self, named: str, problem: tuple[object, ...]) -> str:
        """Compares the plans, keeps the new one, and returns its family."""
        old = self._ffi.new("lltm_step_plan*")
        new = self._ffi.new("lltm_step_plan*")
        self._new_plan = new
        self._old.call("step_plan", *problem, old)
        self._new.call("step_plan", *problem, new)
        old_family = self._old.step_families[old.family]
        new_family = self._new.step_families[new.family]
        if old_family == new_family:
            fields = ("workspace_bytes", "makes_gates", "split_k", "calls_product")
            values = ([getattr(plan, name) for name in fields] for plan in (old, new))
            self._expect_same(f"the plan of {named}", *values)
            self.counts[f"step plans the same, {new_family}"] += 1
        else:
            self.counts[f"step plans that differ, {old_family} became {new_family}"] += 1
        return str(new_family)

    def _launch_step(self, family: str, problem: tuple[object, ...], sizes: dict[str, int]) -> None:
        dtype, backward, _, _, execution = problem
        name = "backward" if backward else "forward"
        arguments = self._ffi.new(f"lltm_step_{name}_arguments*", {"sizes": sizes})
        absent = dict.fromkeys(("grad_h", "grad_cell", "grad_gates", "more_grad_h"), 0.2)
        absent |= dict.fromkeys(("d_input", "d_weights", "d_bias", "d_old_h", "d_old_cell"), 0.3)
        recomputes = backward and family.startswith("rows")
        absent["gates"] = 0.3 if recomputes else 0.0
        absent["bias"] = 0.0 if family == "cublas" else 0.3
        self._fill_pointers(arguments, absent)
        if family == "gemm":
            if backward:
                arguments.d_bias = self._ffi.NULL
            calls = [
                build.call_pointwise(name, dtype, arguments, execution)
                for build in (self._old, self._new)
            ]
        else:
            calls = [
                build.call(
                    f"step_{name}", dtype, build.step_families.index(family), arguments, execution
                )
                for build in (self._old, self._new)
            ]
        self._expect_same(f"{family} {name} {dtype} {sizes}", *calls)
        self.counts[f"step launches the same, {family} {name}"] += calls[0] == calls[1]

    def _compare_layer(self, dtype: int, execution: object) -> None:
        multiple = self._random.choice((1, 2, 4, 8, 8, 16))
        state = self._size(3300, multiple)
        sizes = {
            "steps": self._size(2048),
            "batch_size": self._size(1024),
            "state_size": state,
            "weight_stride": state + self._size(3300, multiple),
            "reverse": self._random.randrange(2),
            "allow_tf32": self._random.randrange(2),
        }
        backward = self._random.randrange(2)
        named = f"{dtype} {'backward' if backward else 'forward'} {sizes}"
        old = self._ffi.new("lltm_layer_plan*")
        new = self._ffi.new("lltm_layer_plan*")
        layer = self._ffi.new("lltm_layer_sizes*", sizes)
        problem = (dtype, backward, layer, execution)
        self._old.call("layer_plan", *problem, old)
        self._new.call("layer_plan", *problem, new)
        plans = (bytes(self._ffi.buffer(plan)) for plan in (old, new))
        self._expect_same(f"the plan of the layer {named}", *plans)
        padded = " of padded sizes" if new.padded_state else ""
        self.counts[f"layer plans, {LAYER_FAMILIES[new.family]}{padded}"] += 1
        if new.family == 0 or new.padded_state or old.family != new.family:
            return
        name = "backward" if backward else "forward"
        arguments = self._ffi.new(f"lltm_layer_{name}_arguments*", {"sizes": sizes})
        optional = ("bias", "initial_h", "initial_cell", "grad_output", "grad_cells")
        self._fill_pointers(arguments, dict.fromkeys(optional, 0.3))
        calls = [
            build.call(f"layer_{name}", dtype, new.family, arguments, execution)
            for build in (self._old, self._new)
        ]
        self._expect_same(f"the layer {named}", *calls)
        self.counts[f"layer launches the same, {LAYER_FAMILIES[new.family]} {name}"] += (
            calls[0] == calls[1]
        )

    def _compare_copies(self, dtype: int, execution: object) -> None:
        count = self._random.randint(1, 13)
        copies = self._ffi.new("lltm_copy[]", count)
        for copy in copies:
            copy.to = self._pointer()
            setattr(copy, "from", self._pointer())
            copy.planes = self._random.randint(1, 4)
            for name in ("from_rows", "to_rows", "from_columns", "to_columns"):
                setattr(copy, name, self._size(500))
            copy.from_stride = copy.to_stride = 600
        calls = [
            build.call("copy", dtype, count, copies, execution) for build in (self._old, self._new)
        ]
        self._expect_same("copies", *calls)
        self.counts["launches of copies the same"] += calls[0] == calls[1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--count", type=int, default=5000, help="problems (default 5000)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    ffi = kernel_table.interface()
    ffi.cdef(FAKE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fakes = folder / "libfakes.so"
        # The kernels look for cuBLAS by this name among the libraries of the process.
        options = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcublas.so.13"]
        include = f"-I{cuda / 'include'}"
        source = str(HERE / "fake_cuda.cpp")
        subprocess.run(["g++", *options, include, source, "-o", str(fakes)], check=True)
        fake = ffi.dlopen(str(fakes), ffi.RTLD_NOW | ffi.RTLD_GLOBAL)
        for objects in (arguments.old, arguments.new):
            for kernel, sizes in read_parameters(objects).items():
                fake.fake_set_parameters(kernel.encode(), ",".join(map(str, sizes)).encode())
        old = Build(ffi, fake, arguments.old, library=folder / "old.so", fakes=fakes)
        new = Build(ffi, fake, arguments.new, library=folder / "new.so", fakes=fakes)
        comparison = Comparison(ffi, fake, old, new, seed=arguments.seed)
        for _ in range(arguments.count):
            comparison.run()
        for what, count in sorted(comparison.counts.items()):
            print(f"{count:6} {what}")
        for difference in comparison.differences[:5]:
            print(difference[:2000])
        print(f"{len(comparison.differences)} differences")
    return 1 if comparison.differences else 0


if __name__ == "__main__":
    sys.exit(main())
