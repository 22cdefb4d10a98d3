"""The command that mends a fault, from the support facts and the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_facts import make_runtime, make_torch

from lltm_conda._project import PROJECT
from lltm_conda.engine.compat import Environment, TorchInstall, VariantName, fixes, support

PIP, CONDA = Environment("pip"), Environment("conda")
UPGRADE = "python -m pip install --upgrade --force-reinstall --no-deps lltm"


def test_the_shipped_facts_are_readable_and_name_real_variants() -> None:
    facts = support.load(PROJECT.folder)
    assert "stable210-cpu" in facts.variants
    assert all(str(VariantName.parse(name)) == name for name in facts.variants)
    assert facts.torch_min < (2, 10) < facts.torch_max


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", '{"torch_min": 3}'])
def test_without_facts_nothing_is_promised_but_a_local_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    path = tmp_path / "support.json"
    if text is not None:
        path.write_text(text)
    facts = support.load(tmp_path)
    assert facts.variants == ()
    monkeypatch.setattr(fixes, "load", lambda _: facts)
    assert fixes.fit_torch(make_runtime(make_torch("2.13.0"))) == fixes.build(PROJECT)


def test_the_facts_come_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "support.json"
    path.write_text(
        json.dumps(
            {
                "variants": ["aten27-abi1-cpu"],
                "torch_min": "2.7",
                "torch_max": "2.8",
                "python_min": "3.12",
            }
        )
    )
    facts = support.load(tmp_path)
    assert facts.glues() == {"aten27-abi1"}
    assert (facts.torch_min, facts.torch_max, facts.python_min) == ((2, 7), (2, 8), (3, 12))


@pytest.mark.parametrize(
    ("torch", "environment", "command"),
    [
        (make_torch("2.3.1"), PIP, 'python -m pip install "torch>=2.4"'),
        (make_torch("2.3.1"), CONDA, 'conda install "pytorch>=2.4"'),
        (make_torch("2.9.1"), PIP, UPGRADE),
        (make_torch("2.9.1"), CONDA, 'conda install lltm "pytorch=2.9"'),
        (make_torch("2.9.0a0+git1"), PIP, "python -m lltm_conda build"),
        (make_torch("2.9.1", cxx11_abi=0), PIP, "python -m lltm_conda build"),
        (make_torch("2.6.0", cxx11_abi=1), CONDA, 'conda install lltm "pytorch=2.6"'),
    ],
)  # fmt: skip
def test_the_command_for_a_torch(
    torch: TorchInstall, environment: Environment, command: str
) -> None:
    assert fixes.fit_torch(make_runtime(torch, environment=environment)) == command


@pytest.mark.parametrize(("environment", "tool"), [(PIP, "-m pip "), (CONDA, "conda install ")])
def test_commands_are_those_of_the_environment(environment: Environment, tool: str) -> None:
    runtime = make_runtime(environment=environment)
    for command in (
        fixes.install_torch(environment, PROJECT),
        fixes.reinstall_torch(environment, make_torch("2.9.1+cu128")),
        fixes.cuda_torch(environment, make_torch("2.9.1+cpu")),
        fixes.reinstall(runtime),
    ):
        assert tool in command
        assert "+" not in command  # a local version exists on no index


def test_a_build_for_gpus_names_their_architectures_once() -> None:
    command = fixes.build_cuda(PROJECT, ((9, 0), (7, 5), (9, 0)))
    assert command == 'TORCH_CUDA_ARCH_LIST="7.5;9.0" python -m lltm_conda build'
