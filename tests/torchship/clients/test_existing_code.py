"""Code as extensions have it, compiled as it is into ATen glue, beside an op of the stable lane.

`existing/csrc` includes torch/extension.h, dispatches over dtypes with ATen's macros, has gradients
in C++ and binds with pybind11's macro.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Forks
from small_clients import FOLDER, PYTHONPATH, linked_again, project_of

from torchship.builder import BuildError, BuildRequest, execute, fitting_request, plan
from torchship.doctor import judge_file
from torchship.judge import find_torch, probe_runtime
from torchship.judge.project import Project
from torchship.judge.reading.binary import read_binary
from torchship.judge.records import NOWHERE

pytestmark = pytest.mark.slow

STABLE = """\
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

static torch::stable::Tensor same(const torch::stable::Tensor& values) { return values; }

STABLE_TORCH_LIBRARY_FRAGMENT(existing, library) { library.def("same(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(existing, CompositeExplicitAutograd, library) {
  library.impl("same", TORCH_BOX(&same));
}
"""

LOAD = """
import sys
from pathlib import Path
import torch
from small_clients import loader_of, project_of
from test_existing_code import project_in
loader = loader_of(project_in(Path(sys.argv[1])))
print(loader.load().variant)
ops = torch.ops.existing
"""


def project_in(root: Path) -> Project:
    project = project_of("bare", root)
    return project._replace(
        distribution="existing-client",
        package="existing_client",
        namespace="existing",
        prefix="EXISTING",
        operator="scale",
        has_cuda_glue=True,
        is_stable=False,
    )


def request_in(root: Path) -> BuildRequest:
    # Debugging symbols of torch's headers take longer than all the rest.
    compiler = root / "c++"
    compiler.write_text('#!/bin/sh\nexec c++ "$@" -g0\n')
    compiler.chmod(0o755)
    env = {**os.environ, "CXX": str(compiler), "DEBUG": "1"}
    return fitting_request(project_in(root), find_torch(), root / "lib", env, log=lambda line: None)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built project."""
    folder = tmp_path_factory.mktemp("existing") / "existing"
    shutil.copytree(FOLDER / "existing", folder)
    build = {"glue": {"cuda": {"defines": {"WITH_CUDA": None}}}}
    (folder / "build.json").write_text(json.dumps(build), encoding="utf-8")
    shutil.copy2(FOLDER / "bare" / "csrc" / "ops" / "register.cpp", folder / "csrc/ops/gram.cpp")
    if find_torch().version_tuple >= (2, 10):
        (folder / "csrc" / "ops" / "stable.cpp").write_text(STABLE, encoding="utf-8")
    execute(plan(request_in(folder)), folder / "work", jobs=2, log=lambda line: None)
    return folder


Run = Callable[[str], str]


@pytest.fixture
def run(root: Path, forked: Forks) -> Run:
    """Runs code in a process that has loaded the project; returns what it prints."""

    def run_code(code: str) -> str:
        env = os.environ | {"PYTHONPATH": PYTHONPATH}
        process = forked.run(LOAD + code, str(root), cwd=FOLDER, env=env)
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    return run_code


def test_its_glue_is_for_the_torch_that_is_installed(root: Path) -> None:
    (glue,) = (root / "lib").glob("*.so")
    torch = find_torch()
    minor = "".join(map(str, torch.version_tuple))
    assert glue.name.startswith(f"glue-aten{minor}-abi{torch.cxx11_abi}")
    assert glue.name == f"glue-{request_in(root).glue}.so"
    assert judge_file(glue, probe_runtime(project=project_in(root), gpu=False)).accepted


def test_its_glue_refers_to_no_python(root: Path) -> None:
    (glue,) = (root / "lib").glob("*.so")
    assert read_binary(glue).python_symbols == ()


def test_the_doctor_refuses_it_beside_another_torch(root: Path) -> None:
    (glue,) = (root / "lib").glob("*.so")
    runtime = probe_runtime(project=project_in(root), gpu=False)
    assert runtime.torch is not None
    older = runtime.torch._replace(version="2.6.0", version_tuple=(2, 6), root=NOWHERE)
    verdict = judge_file(glue, runtime._replace(torch=older))
    assert verdict.cause is not None
    assert "built for torch" in verdict.cause.why


def test_its_operators_compute_with_gradients(run: Run) -> None:
    run(
        "x = torch.rand(5, dtype=torch.float64, requires_grad=True)\n"
        "assert torch.equal(ops.scale(x, 3.0), x * 3)\n"
        "assert torch.autograd.gradcheck(lambda v: ops.scale(v, 2.5), x)\n"
        "for dtype in (torch.half, torch.bfloat16, torch.float):\n"
        "    ones = torch.ones(3000, dtype=dtype)\n"
        "    assert torch.equal(ops.scale(ones, 2.0), ones * 2)\n"
        "assert [part.tolist() for part in ops.split(torch.arange(4), 2)] == [[0, 1], [2, 3]]\n",
    )


def test_numbers_of_any_type_become_those_of_a_schema(run: Run) -> None:
    run(
        "types = [str(argument.type) for argument in ops.power.default._schema.arguments]\n"
        "assert types == ['Tensor', 'int', 'float', 'Optional[Tensor]', 'List[int]'], types\n"
        "x = torch.tensor([1.0, 2.0])\n"
        "following, y, half = ops.power(x, 3, 0.5, x, [2])\n"
        "assert (following, half) == (4, 0.25)\n"
        "assert y.tolist() == [1.5, 6.0, 1.5, 6.0]\n"
        "y, divisor = ops.halves(x, None)\n"
        "assert (y.tolist(), divisor) == ([0.5, 1.0], None)\n"
        "assert ops.halves(x, 4)[1] == 4\n"
        "ops.fill(x, 7.0)\n"
        "assert x.tolist() == [7.0, 7.0]\n"
        "assert ops.version('existing') == 'existing 1'\n",
    )


def test_a_number_outside_the_range_of_the_functions_type_is_refused(run: Run) -> None:
    run(
        "x = torch.ones(2)\n"
        "for exponent, sizes in ((2**31, []), (1, [-1])):\n"
        "    try:\n"
        "        ops.power(x, exponent, 1.0, None, sizes)\n"
        "        raise SystemExit('accepted')\n"
        "    except RuntimeError as error:\n"
        "        assert 'outside the range of the C++ function' in str(error), error\n",
    )


def test_a_statically_linked_libstdcxx_does_not_mix_with_that_of_torch(
    root: Path, tmp_path: Path, forked: Forks
) -> None:
    (glue,) = linked_again(request_in(root), tmp_path, "-static-libstdc++")
    assert "libstdc++.so.6" not in read_binary(glue).needed
    code = (
        "import torch\n"
        f"torch.ops.load_library({str(glue)!r})\n"
        "try:\n"
        "    torch.ops.existing.power(torch.ones(2), 2**31, 1.0, None, [])\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    process = forked.run(code, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "2147483648 is outside the range" in process.stdout


def test_sources_that_bind_one_name_are_refused_before_they_are_compiled(tmp_path: Path) -> None:
    folder = tmp_path / "existing"
    shutil.copytree(FOLDER / "existing", folder)
    for name in ("first.cpp", "second.cc"):
        source = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }'
        (folder / "csrc" / "ops" / name).write_text(source, encoding="utf-8")
    with pytest.raises(BuildError, match="both register the operator twice"):
        plan(request_in(folder))


@pytest.mark.cuda
def test_its_operators_compute_on_cuda(run: Run) -> None:
    run(
        "x = torch.rand(5000, dtype=torch.float64, device='cuda', requires_grad=True)\n"
        "y = ops.scale(x, 3.0)\n"
        "assert torch.equal(y, x * 3)\n"
        "y.sum().backward()\n"
        "assert torch.equal(x.grad, torch.full_like(x, 3.0))\n",
    )


def test_an_op_of_the_stable_lane_is_in_the_same_glue(run: Run) -> None:
    run(
        "rows = torch.arange(6, dtype=torch.float64).reshape(2, 3)\n"
        "assert torch.equal(ops.gram(rows), rows @ rows.T)\n"
        "if hasattr(ops, 'same'): assert torch.equal(ops.same(rows), rows)\n",
    )


def test_pybind11_s_arguments_give_names_and_defaults(run: Run) -> None:
    run(
        "assert 'float number=1.5' in str(ops.fill.default._schema)\n"
        "x = torch.zeros(3)\n"
        "ops.fill(values=x)\n"
        "assert torch.equal(x, torch.full((3,), 1.5))\n"
        "half, divisor = ops.halves(x)\n"
        "assert divisor is None and torch.equal(half, x / 2)\n",
    )


def test_policies_of_pybind11_are_refused_with_the_way_round(root: Path, tmp_path: Path) -> None:
    request = request_in(root)
    step = next(step for step in plan(request) if step.name.startswith("compile scale.cpp"))
    # Without the rest of torch's headers, which take most of the time.
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "all.h").write_text("#include <ATen/core/Tensor.h>\n")
    source = tmp_path / "bound.cpp"
    source.write_text(
        "#include <torch/extension.h>\n"
        "struct keep_alive {};\n"
        "at::Tensor same(at::Tensor x) { return x; }\n"
        'PYBIND11_MODULE(name, m) { m.def("same", &same, "help", keep_alive()); }\n'
    )
    where = step.command.index("-MMD")
    command = [step.command[0], f"-I{tmp_path}", *step.command[1:where]]
    command += ["-fsyntax-only", str(source)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode != 0
    assert "takes py::arg and texts, and no policies of" in process.stderr
