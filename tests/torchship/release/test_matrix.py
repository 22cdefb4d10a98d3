"""build_matrix.yaml: what it says holds together, and every mistake in it is named by its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchship.judge.rules.cuda import runs_on
from torchship.release import ReleaseError
from torchship.release.matrix.cells import all_cells
from torchship.release.matrix.load import leftovers, load

# (what is replaced, by what, what the message must hold)
MISTAKES = [
    ("schema: 1", "schema: 2", ["`schema`: got 2", "needs 1"]),
    ('  default_torch: "2.13"', "  default_torch: 2.13", ["got 2.13", "quotes"]),
    ('  default_torch: "2.13"', '  default_torch: "2.99"', ["2.99", "no entry", "2.15"]),
    ("  default_torch:", "  default_trch:", ["unknown key", "did you mean default_torch"]),
    ("schema: 1", "schema: two", ["got 'two'", "needs 1"]),
    ("    gcc: [11, 15]", "    gc: [11, 15]", ["did you mean gcc"]),
    ("sm_70, sm_80", "sm_70, sm_99", ["sm_99", "CUDA 12.8 has no such architecture"]),
    ("sm_70, sm_80", "sm_80, sm_80", ["sm_80 is listed twice"]),
    ("sm_70, sm_80", "70, sm_80", ["got 70", "string"]),
    ('    toolkit: "13.0"', '    toolkit: "12.8"', ["cuda12", "not cuda13"]),
    ('    toolkit: "13.0"', '    toolkit: "13.7"', ["13.7", "12.8, 13.0"]),
    ("[cpu, cu12, cu13]", "[cpu, cu12, cu12]", ["two equal cells", "cu12"]),
    ('  target: "2.10"', '  target: "2.14"', ["torch 2.13", "cannot target torch 2.14"]),
    ("    gcc: [9, 14]", "    gcc: [14, 9]", ["lower bound 14 is above"]),
    ("    gcc: [9, 14]", "    gcc: [15, 16]", ["no g++ in [15, 16]", "CUDA 12.8"]),
    ("    gcc: [11, 15]", "    gcc: [9, 15]", ["C++20 needs g++ 10"]),
    ("abi: {pypi: 0, conda: 1}", "abi: {pypi: 1, conda: 1}", ["torch 2.4", "C++11 ABI 0"]),
    ('    release: "2.4.1"', '    release: "2.5.1"', ["not a release of torch 2.4"]),
    ('["3.10", "3.11", "3.12"]\n', '["3.10", "3.13"]\n', ["no wheel for Python 3.13"]),
    ('["3.11", "3.12", "3.13", "3.14", "3.15"]', '["3.10"]', ["no wheel for Python 3.10"]),
    ("abi: {pypi: 1, conda: 1}", "abi: {pypi: 1, conda: 0}", ["conda-forge", "ABI 1, got 0"]),
    ("  cpu: {}", '  cpu: {toolkit: "12.8"}', ["CPU kernels take neither"]),
    ('fatbinary: "13.0"', 'fatbinary: "12.8"', ["no fatbinary", "name one of: 13.0"]),
    ("    nvcc: false", "    nvcc: true", ["exclude each other"]),
    ('  built_with: "2.13"', '  built_with: "2.99"', ["2.99", "no entry"]),
    ('  headers: "2.15"', '  headers: "2.98"', ["2.98", "no entry"]),
    ('  headers: "2.15"', '  headers: "2.9"', ["torch 2.9", "cannot target torch 2.10"]),
    ('  "2.5":', '  "2.4":', ["duplicate key"]),
    ("schema: 1", "schema: [", ["not valid YAML"]),
]


def refusal_of(tmp_path: Path, content: str) -> str:
    path = tmp_path / "matrix.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ReleaseError) as error:
        load(path)
    return str(error.value)


@pytest.mark.parametrize(("old", "new", "expected"), MISTAKES, ids=[m[1].strip() for m in MISTAKES])
def test_a_mistake_is_named(matrix_text, tmp_path, old, new, expected) -> None:
    assert old in matrix_text
    message = refusal_of(tmp_path, matrix_text.replace(old, new, 1))
    for part in expected:
        assert part in message


@pytest.mark.parametrize(
    "old", ["sm_70, sm_80", '    toolkit: "13.0"', "    abi: {pypi: 0", "  target:"]
)
def test_the_line_is_that_of_the_mistake(matrix_text, tmp_path, old) -> None:
    new = {"sm_70, sm_80": "sm_70, sm_99", "  target:": "  targt:"}
    new["    abi: {pypi: 0"] = "    abi: {pypi: 2"
    number = 1 + matrix_text[: matrix_text.index(old)].count("\n")
    content = matrix_text.replace(old, new.get(old, '    toolkit: "13.9"'), 1)
    assert f"matrix.yaml:{number}:" in refusal_of(tmp_path, content)


def test_every_mistake_is_reported_at_once(matrix_text, tmp_path) -> None:
    content = matrix_text.replace("pypi: 0", "pypi: 2", 1).replace("conda: 1", "conda: 3", 1)
    assert len(refusal_of(tmp_path, content).splitlines()) == 2


def test_a_device_without_kernels_gets_no_cell_and_is_said(matrix_text, tmp_path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(matrix_text.replace("[cpu, cu12, cu13]", "[cpu, cu12, cu14]"))
    names = {cell.name for cell in all_cells(load(path))}
    assert "stable210-cu12" in names and "stable210-cu14" not in names
    (said,) = leftovers(path)
    assert "`stable.devices` names cu14, which has no entry" in said


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(ReleaseError, match=r"none\.yaml: cannot be read"):
        load(tmp_path / "none.yaml")


@pytest.mark.parametrize("content", ["", "just text", "- a\n- b"])
def test_a_file_of_another_shape_is_refused(tmp_path, content) -> None:
    assert "needs a mapping" in refusal_of(tmp_path, content)


def test_every_gpu_of_a_torch_finds_machine_code_and_one_that_serves_it(matrix) -> None:
    """From the oldest that the kernels are for; no two of them serve the same GPUs."""
    kernels = {k.cuda_major: k.archs for k in matrix.kernels.values() if k.cuda_major}
    for torch in matrix.torch.values():
        archs = kernels[torch.cuda_major]
        oldest = min(int(arch.split("_")[1]) for arch in archs)
        for number in (n for n in torch.cuda.archs if n >= oldest):
            assert runs_on(tuple(archs), divmod(number, 10)) == "code", (torch.release, number)
    for archs in kernels.values():
        majors = [divmod(int(arch[3:]), 10)[0] for arch in archs if arch.startswith("sm_")]
        assert len(majors) == len(set(majors)), archs


def test_the_conda_pin_and_the_c_standard_follow_from_the_release(matrix) -> None:
    torch = matrix.torch["2.9"]
    assert (torch.cxx, torch.conda) == (17, ">=2.9.0,<2.10.0a0")
    assert {matrix.torch[minor].cxx for minor in ("2.10", "2.11", "2.12")} == {17}
    assert {matrix.torch[minor].cxx for minor in ("2.13", "2.14", "2.15")} == {20}
