"""`build:` of the matrix: what each kind of object is compiled from, and with what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError
from small_projects import build_kernels, function, kernels_request, make_project, write

from torchship.builder import BuildError, BuildRequest, CudaToolkit, cxx_standard, execute, plan
from torchship.builder.cuda_flags import clang_flags
from torchship.builder.cuda_libraries import CUDA_LIBRARIES, cuda_link_inputs
from torchship.builder.cuda_toolkit import find_cuda_toolkit
from torchship.builder.options import BuildOptions, ObjectOptions, read_options
from torchship.judge.cache import source_hash
from torchship.judge.project import Project
from torchship.judge.reading.binary import read_binary
from torchship.release.matrix.build_schema import Build
from torchship.release.matrix.cells import arch_list
from torchship.release.steps.compile.audit import ALLOWED


class KnownToolkit(CudaToolkit):
    """A toolkit that is planned with, and never runs."""

    @property
    def link_dirs(self) -> tuple[str, ...]:
        return self.library_dirs

    def architectures(self) -> frozenset[str]:
        return frozenset({"80", "90", "100"})


def cuda_request(project: Project, out: Path, folder: Path) -> BuildRequest:
    """The request for CUDA kernels, by a toolkit whose libraries are in `folder`."""
    toolkit = KnownToolkit(nvcc="/cuda/bin/nvcc", version=(13, 0), library_dirs=(str(folder),))
    return BuildRequest(
        out_dir=out,
        project=project,
        kernels=("cuda13",),
        env={},
        cuda=toolkit,
        architectures="9.0a;10.0f+PTX",
    )


def test_sources_of_every_suffix_are_compiled_in_every_folder(tmp_path: Path) -> None:
    suffixes = ("cpp", "cc", "cxx", "c++")
    files = {
        f"csrc/kernels/cpu/{'deep/' * depth}part.{suffix}": function(f"f{depth}_{number}", "7")
        for depth in range(2)
        for number, suffix in enumerate(suffixes)
    }
    library = build_kernels(make_project(tmp_path, files), tmp_path / "out")
    names = [f"f{depth}_{number}" for depth in range(2) for number in range(len(suffixes))]
    assert [getattr(library, name)() for name in names] == [7] * 8


def test_an_object_without_sources_is_refused(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"csrc/kernels/cpu/notes.txt": "none"})
    with pytest.raises(BuildError, match=r"the cpu object of small has no sources: looked for"):
        plan(kernels_request(project, tmp_path / "out"))


def test_folders_macros_flags_and_the_standard_of_the_matrix_reach_the_compiler(
    tmp_path: Path,
) -> None:
    project = make_project(
        tmp_path,
        {
            "third_party/numbers/numbers.hpp": "constexpr int kNine = 9;",
            "native/sum.cc": function(
                "sum", "kNine + TEN + (__cplusplus > 201703L)", "#include <numbers.hpp>"
            ),
        },
        {
            "cpu": {
                "sources": ["native"],
                "include": ["third_party/numbers"],
                "defines": {"TEN": 10, "UNUSED": None},
                "flags": ["-fno-math-errno"],
                "std": 20,
                "libraries": ["m"],
            }
        },
    )
    assert build_kernels(project, tmp_path / "out").sum() == 20
    (command,) = [
        step.command for step in plan(kernels_request(project, tmp_path)) if "sum.cc" in step.name
    ]
    assert "-fno-math-errno" in command


@pytest.mark.parametrize(
    ("lane", "torch", "standard"),
    [
        ("stable", (2, 10), 17),
        ("stable", (2, 15), 17),
        ("aten", (2, 12), 17),
        ("aten", (2, 13), 20),
        ("aten", (2, 15), 20),
    ],
)
def test_the_standard_of_a_glue_follows_from_its_lane_and_torch(
    lane: str, torch: tuple[int, int], standard: int
) -> None:
    assert cxx_standard(lane, torch) == standard


def test_the_record_names_the_standard(tmp_path: Path) -> None:
    files = {"csrc/kernels/cpu/one.cc": function("one", "1")}
    project = make_project(tmp_path, files, {"cpu": {"std": 20}})
    build_kernels(project, tmp_path / "out")
    record = read_binary(tmp_path / "out" / "kernels-cpu.so").record
    assert record is not None
    assert '"cxx_standard": 20' in record.text


def test_a_pattern_after_an_exclamation_mark_leaves_sources_out(tmp_path: Path) -> None:
    project = make_project(
        tmp_path,
        {"native/good.cpp": function("good", "1"), "native/old/broken.cpp": "does not compile"},
        {"cpu": {"sources": ["native/**/*.cpp", "!native/old"]}},
    )
    assert build_kernels(project, tmp_path / "out").good() == 1


def test_a_pattern_that_names_no_file_is_refused(tmp_path: Path) -> None:
    project = make_project(tmp_path, {}, {"cpu": {"sources": ["native/*.cpp"]}})
    with pytest.raises(BuildError, match=r"names the sources 'native/\*.cpp', but there is no"):
        plan(kernels_request(project, tmp_path / "out"))


GENERATOR = """
import sys
from pathlib import Path
out = Path(sys.argv[1])
number = Path(sys.argv[2]).read_text().strip()
(out / "number.h").write_text(f"constexpr int kNumber = {number};")
for name in ("a", "b"):
    source = f'extern "C" __attribute__((visibility("default"))) int {name}() {{ return kNumber; }}'
    (out / f"{name}.cpp").write_text('#include "number.h"\\n' + source)
"""


@pytest.fixture
def generating(tmp_path: Path) -> Project:
    """A project whose sources are written by a program, out of a file."""
    program = {
        "object": "cpu",
        "command": ["python", "tools/write.py", "{out}", "tools/number.txt"],
        "inputs": ["tools/write.py", "tools/number.txt"],
        "outputs": ["number.h", "a.cpp", "b.cpp"],
    }
    files = {"tools/write.py": GENERATOR, "tools/number.txt": "5"}
    return make_project(tmp_path, files, {"generated": [program]})


def test_generated_sources_are_written_and_compiled(generating: Project, tmp_path: Path) -> None:
    library = build_kernels(generating, tmp_path / "out")
    assert (library.a(), library.b()) == (5, 5)


def test_generated_sources_follow_their_inputs(generating: Project, tmp_path: Path) -> None:
    build_kernels(generating, tmp_path / "out")
    (tmp_path / "tools" / "number.txt").write_text("6")
    request = kernels_request(generating, tmp_path / "out")
    execute(plan(request), tmp_path / "out" / "work", jobs=2, log=lambda line: None)
    assert b"kNumber = 6" in (tmp_path / "out" / "generated" / "number.h").read_bytes()


def test_a_missing_input_of_generated_sources_is_named(generating: Project, tmp_path: Path) -> None:
    (tmp_path / "tools" / "number.txt").unlink()
    with pytest.raises(BuildError, match=r"names the input tools/number.txt, but there is no"):
        plan(kernels_request(generating, tmp_path / "out"))


def test_the_parts_of_a_large_object_are_compiled_apart(tmp_path: Path) -> None:
    """Each source waits for no other, so ninja compiles them side by side."""
    files = {f"csrc/kernels/cpu/{n}/kernel.cpp": function(f"f{n}", "0") for n in range(20)}
    steps = plan(kernels_request(make_project(tmp_path, files), tmp_path / "out"))
    parts = [step for step in steps if step.name == "compile kernel.cpp for kernels-cpu.so"]
    assert len({step.output for step in parts}) == 20
    outputs = {step.output for step in steps}
    assert all(not outputs & {*step.inputs, *step.after} for step in parts)


CUDA_BUILD = {
    "cuda": {
        "flags": ["--expt-relaxed-constexpr", "-lineinfo"],
        "defines": {"TILE": 64},
        "include": ["third_party/tiles"],
        "std": 20,
        "libraries": ["cublas", "curand"],
    }
}


def test_what_the_matrix_says_of_cuda_reaches_nvcc_and_its_linker(tmp_path: Path) -> None:
    write(tmp_path, {"lib/libcublas.so.13": "", "lib/libcurand.so": ""})
    project = make_project(tmp_path, {"csrc/kernels/cuda/deep/k.cu": ""}, CUDA_BUILD)
    steps = plan(cuda_request(project, tmp_path / "out", tmp_path / "lib"))
    command = next(step.command for step in steps if "k.cu" in step.name)
    assert {"--expt-relaxed-constexpr", "-lineinfo", "-DTILE=64", "-std=c++20"} <= {*command}
    assert f"-I{tmp_path}/third_party/tiles" in command
    for code in (
        "arch=compute_90a,code=sm_90a",
        "arch=compute_100f,code=sm_100f",
        "arch=compute_100f,code=compute_100f",
    ):
        assert code in command
    libraries = [f"{tmp_path}/lib/libcublas.so.13", f"{tmp_path}/lib/libcurand.so"]
    assert list(steps[-1].command[-2:]) == libraries


def test_a_library_that_the_toolkit_lacks_is_named_with_what_brings_it(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"libcurand.so, .* pip install \"cuda-toolkit\[curand\]"):
        cuda_link_inputs(["curand"], [str(tmp_path)])


@pytest.mark.parametrize("library", CUDA_LIBRARIES)
def test_the_audit_allows_each_library_that_the_matrix_may_name(library: str) -> None:
    assert ALLOWED.fullmatch(f"lib{library}.so.13")


@pytest.mark.slow
def test_nvcc_makes_code_for_an_architecture_with_a_suffix(tmp_path: Path) -> None:
    toolkit = find_cuda_toolkit({"PATH": "/usr/local/bin:/usr/bin:/bin"})
    if toolkit is None:
        pytest.skip("needs nvcc")
    source = "__global__ void nothing() {}\nvoid run() { nothing<<<1, 1>>>(); }\n"
    project = make_project(tmp_path, {"csrc/kernels/cuda/k.cu": source})
    request = cuda_request(project, tmp_path / "out", tmp_path)
    request = replace(request, cuda=toolkit, env=kernels_request(project, tmp_path).env)
    execute(plan(request), tmp_path / "out" / "work", log=lambda line: None)
    binary = read_binary(tmp_path / "out" / "kernels-cuda13.so")
    assert binary.problems == ()
    assert binary.cuda_archs == ("sm_90a", "sm_100f", "compute_100f")


def test_architectures_with_a_suffix_are_written_as_torch_writes_them() -> None:
    archs = ["sm_80", "sm_90a", "sm_100f", "compute_100f"]
    assert arch_list(archs) == "8.0;9.0a;10.0f+PTX"


def test_nvccs_flags_become_those_of_clang() -> None:
    flags = ["--expt-relaxed-constexpr", "-Xptxas", "-v,-O2", "--use_fast_math", "--threads=4"]
    expected = ["-Xcuda-ptxas", "-v", "-Xcuda-ptxas", "-O2", "-ffast-math", "-funroll-loops"]
    assert clang_flags([*flags, "-Xcompiler", "-funroll-loops"]) == expected


@pytest.mark.parametrize(("is_fused", "contraction"), [("false", "off"), ("true", "fast")])
@pytest.mark.parametrize("flag", ["-fmad", "--fmad"])
def test_clang_fuses_multiplications_and_additions_as_nvcc_would(
    flag: str, is_fused: str, contraction: str
) -> None:
    """Else the kernels of clang would give other bits than those of nvcc."""
    assert clang_flags([f"{flag}={is_fused}"]) == [f"-ffp-contract={contraction}"]


def test_a_flag_without_a_counterpart_in_clang_is_refused() -> None:
    with pytest.raises(BuildError, match=r"nvcc's flag --ftemplate-backtrace-limit=0, for which"):
        clang_flags(["--ftemplate-backtrace-limit=0"])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ({"cpu": {"flags": ["-Ithird_party"]}}, "needs the folder under `include:`"),
        ({"cpu": {"flags": ["-std=c++20"]}}, "needs the number under `std:`"),
        ({"cpu": {"flags": ["-march=native"]}}, "for the machines of all users"),
        ({"cuda": {"flags": ["-rdc=true"]}}, "no step links device code"),
        ({"cuda": {"flags": ["-lcublas"]}}, "under `libraries:`"),
        ({"cuda": {"libraries": ["mkl_rt"]}}, "needs one of dl, m, pthread, rt, cublas"),
        ({"cpu": {"include": ["../elsewhere"]}}, "needs a path below the folder"),
        ({"cpu": {"sources": ["/usr/src/x.cpp"]}}, "needs a path below the folder"),
        ({"cpu": {"defines": {"NAME": 'say "hi"'}}}, "String should match pattern"),
        ({"requires": ["einops; python_version < '3'"]}, "String should match pattern"),
    ],
)
def test_what_no_package_may_have_is_refused(build: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        Build.model_validate(build)
    assert message in str(refusal.value)


def test_requirements_are_spelled_for_pip_and_for_conda() -> None:
    build = Build.model_validate(
        {"requires": ["einops>=0.7, <1", "numpy", {"pip": "pillow>=9", "conda": "pil >=9"}]}
    )
    assert build.pip_requirements == ["einops>=0.7, <1", "numpy", "pillow>=9"]
    assert build.conda_requirements == ["einops >=0.7,<1", "numpy", "pil >=9"]


def test_the_builder_reads_what_the_matrix_says(tmp_path: Path) -> None:
    project = make_project(tmp_path, {}, {**CUDA_BUILD, "data": ["tables/*.bin"]})
    options = read_options(project)
    assert options.cuda.libraries == ("cublas", "curand")
    assert options.cuda.defines == {"TILE": 64}
    assert options.data == ("tables/*.bin",)
    assert options.cpu == ObjectOptions()


def test_a_project_without_the_file_has_the_defaults(tmp_path: Path) -> None:
    assert read_options(make_project(tmp_path, {})) == BuildOptions()


def test_a_damaged_file_is_named_with_its_remedy(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"small/build.json": '{"cpu": 3}'})
    with pytest.raises(BuildError, match=r"build.json is damaged .* generate$"):
        read_options(project)


@pytest.mark.parametrize("name", ["native/sum.cpp", "third_party/sum.h"])
def test_a_local_build_is_of_the_sources_that_the_matrix_names(tmp_path: Path, name: str) -> None:
    """Sources beside `csrc` count in the hash of the cache, too."""
    project = make_project(
        tmp_path,
        {"native/sum.cpp": "", "third_party/sum.h": ""},
        {"cpu": {"sources": ["native/*.cpp"], "include": ["third_party"]}},
    )
    before = source_hash(project.folder)
    (tmp_path / name).write_text("// changed")
    assert source_hash(project.folder) != before
