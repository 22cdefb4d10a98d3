"""The engine serves whichever project it is given."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Forks

import lltm_conda
from lltm_conda._project import PROJECT
from lltm_conda.engine import builder, judge
from lltm_conda.engine.builder import BuildError, BuildRequest, glue_for, plan
from lltm_conda.engine.judge import cache, find_torch, probe_runtime
from lltm_conda.engine.runtime import local_build
from lltm_conda.engine.runtime.loader import BinariesCudaError, BinariesImportError, Loader

OTHER = PROJECT._replace(
    distribution="other-op", package="other_op", namespace="other", prefix="OTHER", definition=""
)


class OtherImportError(BinariesImportError):
    project = OTHER


class OtherCudaError(BinariesCudaError):
    project = OTHER


@pytest.mark.parametrize("name", ["compat", "builder", "local_build"])
def test_the_parts_of_the_engine_have_one_name(name: str) -> None:
    """The engine was never published under these names, so nobody needs them."""
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"lltm_conda.{name}")


def test_a_loader_speaks_for_its_project_and_leaves_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_CACHE", str(tmp_path / "cache"))
    before = lltm_conda.loader.loaded()
    loader = Loader(
        OTHER._replace(folder=tmp_path, operator="none"), OtherImportError, OtherCudaError
    )
    with pytest.raises(OtherImportError) as raised:
        loader.load()
    message = str(raised.value)
    assert message.startswith("other-op cannot be loaded: ")
    assert "python -m other_op" in message
    assert "lltm" not in message
    assert loader.loaded() is None
    assert lltm_conda.loader.loaded() is before is not None


def test_a_loader_needs_no_errors_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_CACHE", str(tmp_path / "cache"))
    loader = Loader(OTHER._replace(folder=tmp_path, operator="none"))
    with pytest.raises(BinariesImportError, match=r"^other-op cannot be loaded: ") as raised:
        loader.load()
    assert raised.value.name == "other_op"


def test_an_import_with_load_0_leaves_names_that_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_LOAD", "0")
    loader = Loader(OTHER)
    assert not loader.at_import()
    with pytest.raises(ImportError, match=r"other_op\.op is not there, because OTHER_LOAD=0"):
        raise loader.absent("op", ["op"])
    with pytest.raises(AttributeError, match="'other_op' has no attribute 'other'"):
        raise loader.absent("other", ["op"])


@pytest.fixture
def run_program(tmp_path: Path, forked: Forks) -> Callable[[str], str]:
    """Runs a Python program with the installed package; returns what it prints."""

    def run(code: str) -> str:
        process = forked.run(textwrap.dedent(code), cwd=tmp_path, env=dict(os.environ))
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    return run


@pytest.mark.parametrize("operator", ["forward", "another"])
def test_a_namespace_that_another_library_has_taken_is_named(
    run_program: Callable[[str], str], operator: str
) -> None:
    """Torch throws for a second library of a namespace, which would end the process."""
    code = f"""
        import torch
        library = torch.library.Library("lltm", "DEF")
        library.define("{operator}(Tensor x) -> Tensor")
        try:
            import lltm_conda
        except ImportError as error:
            print(error)
    """
    output = run_program(code)
    assert "lltm cannot be loaded: another project has registered torch.ops.lltm" in output
    assert "another library of this process" in output
    assert "import lltm_conda without the other project" in output


@pytest.mark.parametrize("operator", ["forward", "backward", "layer_forward"])
def test_an_operator_of_the_glue_that_a_program_has_defined_is_named(
    run_program: Callable[[str], str], operator: str
) -> None:
    """Torch throws for the second definition, which would end the process."""
    code = f"""
        import torch
        library = torch.library.Library("lltm", "FRAGMENT")
        library.define("{operator}(Tensor x) -> Tensor")
        try:
            import lltm_conda
        except ImportError as error:
            print(error)
    """
    output = run_program(code)
    registered = "torch.ops.lltm" if operator == "forward" else f"torch.ops.lltm.{operator}"
    assert f"another project has registered {registered} in this process" in output


def test_operators_that_a_program_adds_to_the_namespace_do_no_harm(
    run_program: Callable[[str], str],
) -> None:
    code = """
        import torch
        library = torch.library.Library("lltm", "FRAGMENT")
        library.define("another(Tensor x) -> Tensor")
        import lltm_conda
        print(lltm_conda.loader.loaded().glue.kind)
    """
    assert run_program(code) == "glue\n"


def test_an_import_goes_on_where_ctrl_c_stopped_the_one_before(
    run_program: Callable[[str], str],
) -> None:
    """The dispatcher keeps the operators of the glue that the stopped import had loaded."""
    code = """
        import os
        os.environ["LLTM_CONDA_LOAD"] = "0"
        from lltm_conda.engine.runtime.loader import Loader
        del os.environ["LLTM_CONDA_LOAD"]
        import sys
        del sys.modules["lltm_conda"]

        def stop(*arguments):
            raise KeyboardInterrupt

        attach = Loader._attach
        Loader._attach = stop
        try:
            import lltm_conda
        except KeyboardInterrupt:
            print("stopped")
        Loader._attach = attach
        import lltm_conda, torch
        print(lltm_conda.loader.loaded().cpu.name)
        print(lltm_conda.LLTM(3, 4)(torch.ones(2, 3))[0].shape)
    """
    assert run_program(code) == "stopped\ncpu\ntorch.Size([2, 4])\n"


def test_an_import_that_is_stopped_anywhere_goes_on(run_program: Callable[[str], str]) -> None:
    """At every 997th of its 16,000 lines, twice in a row, each in a process of its own."""
    code = """
        import os, sys, torch

        class Stop:
            def __init__(self, line):
                self.lines_left = line

            def __call__(self, frame, event, argument):
                if "lltm_conda" not in frame.f_code.co_filename:
                    return None
                self.lines_left -= event == "line"
                if self.lines_left < 0:
                    raise KeyboardInterrupt
                return self

        def stop_and_import(line):
            stops = 0
            for lines in (line, line // 2):
                sys.settrace(Stop(lines))
                try:
                    import lltm_conda
                except KeyboardInterrupt:
                    stops += 1
                sys.settrace(None)
            import lltm_conda
            lltm_conda.LLTM(3, 4)(torch.ones(2, 3))[0].sum().backward()
            return 100 + stops

        codes = []
        for line in range(1, 16_000, 997):
            child = os.fork()
            if child == 0:
                os._exit(stop_and_import(line))
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(len(codes), min(codes) >= 101, max(codes) <= 102, codes)
    """
    assert run_program(code).startswith("17 True True ")


def test_a_loader_heeds_its_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_VARIANT", "nonsense")
    loader = Loader(OTHER._replace(operator="none"), OtherImportError, OtherCudaError)
    with pytest.raises(OtherImportError, match="unset OTHER_VARIANT"):
        loader.load()


def test_binaries_of_one_project_are_not_those_of_another() -> None:
    loaded = lltm_conda.loader.loaded()
    assert loaded is not None
    runtime = probe_runtime(gpu=False, project=OTHER)
    cause = judge.judge_file(loaded.glue.path, runtime).cause
    assert cause is not None
    assert (cause.dimension, cause.observed) == ("package", "package lltm")
    # Judged for nobody, as by a program that asks about any file, they fit.
    assert judge.judge_file(loaded.glue.path, probe_runtime(gpu=False)).accepted


def test_every_project_has_a_cache_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    for project in (PROJECT, OTHER):
        monkeypatch.delenv(project.variable("CACHE"), raising=False)
    assert [str(cache.root(project)) for project in (PROJECT, OTHER)] == [
        "/somewhere/lltm_conda",
        "/somewhere/other_op",
    ]


def test_records_and_symbols_of_a_build_are_those_of_its_project(tmp_path: Path) -> None:
    steps = plan(BuildRequest(tmp_path, OTHER))
    (record,) = (step.generated for step in steps if step.generated)
    assert "other_build_record" in record
    assert '\\"package\\": \\"other-op\\"' in record
    assert "lltm" not in record


def test_a_project_builds_the_kernels_that_it_has(tmp_path: Path) -> None:
    bare = OTHER._replace(kernels=())
    torch = find_torch()
    request = builder.fitting_request(bare, torch, tmp_path, {}, log=lambda _: None)
    assert (request.kernels, request.glue) == ((), glue_for(torch, bare))
    with pytest.raises(BuildError, match="other-op has no cpu kernels"):
        plan(BuildRequest(tmp_path, bare))


def test_errors_of_local_builds_name_the_project(tmp_path: Path) -> None:
    bare = OTHER._replace(folder=tmp_path / "package", cache=tmp_path / "cache")
    with pytest.raises(BuildError, match="installation of other-op has no") as raised:
        local_build.build(bare, find_torch())
    assert "lltm" not in str(raised.value)


def test_the_report_of_a_project_names_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from lltm_conda.engine.runtime.command_line import main

    monkeypatch.setenv("OTHER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other_op" / "lib").mkdir(parents=True)
    project = OTHER._replace(folder=tmp_path / "other_op")
    assert main(project, ["--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["package"]["name"] == "other-op"
    assert "project" not in report["runtime"]
    assert main(project, []) == 1
    assert "other-op does not work here" in capsys.readouterr().out


# Modules that the report, its live run or torch import.
STRANGERS = ("json", "torch", "ctypes", "importlib", "numpy", "re", "sitecustomize", "lltm_conda")


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["-I"], ["-E", "-P"]], ids=" ".join)
def test_the_live_run_is_as_isolated_as_the_report(tmp_path: Path, options: list[str]) -> None:
    """Nothing of the current folder or of PYTHONPATH is executed; without options, the variable
    PYTHONSAFEPATH asks for it."""
    if options != ["-I"] and sys.version_info < (3, 11):
        pytest.skip("Python has -P and PYTHONSAFEPATH from 3.11 on")
    strange = tmp_path / "strange"
    strange.mkdir()
    for folder in (tmp_path, strange):
        for name in STRANGERS:
            (folder / f"{name}.py").write_text('raise SystemExit("executed a stranger\'s file")\n')
    ignores_variables = "-I" in options or "-E" in options
    env = {**os.environ, "PYTHONPATH": str(strange) if ignores_variables else ""}
    if not options:
        env["PYTHONSAFEPATH"] = "1"
    run = subprocess.run(
        [sys.executable, *options, "-m", "lltm_conda"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "stranger" not in run.stdout + run.stderr
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("arguments", [["--json", "doctor"], ["--torch", "x", "build"]])
def test_options_before_a_command_are_refused_not_ignored(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from lltm_conda.engine.runtime.command_line import main

    with pytest.raises(SystemExit) as raised:
        main(OTHER, arguments)
    assert raised.value.code == 2
    assert f"the options of {arguments[-1]} follow it" in capsys.readouterr().err
