"""The plan of a build, and its execution."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from processes import clean_environment as environment
from rendered_client import PROJECT
from small_clients import REPO

from torchship.builder import BuildError, BuildRequest, Step, execute, plan
from torchship.builder import execute as execute_package
from torchship.builder.recipes import cxx_standard
from torchship.judge import find_torch, read_binary

PRINT_PLAN = f"""
import sys
from pathlib import Path, PosixPath
from torchship.builder import fitting_request, plan
from torchship.judge import find_torch
from torchship.judge.project import Project
PROJECT = {PROJECT!r}
for step in plan(fitting_request(PROJECT, find_torch(), Path("out"), {{"PATH": sys.argv[1]}})):
    print(step)
"""


def request(out: Path, **changes: str) -> BuildRequest:
    return BuildRequest(
        out, PROJECT, glue="stable210", torch=find_torch(), env=environment(**changes)
    )


needs_stable_torch = pytest.mark.skipif(
    find_torch().version_tuple < (2, 10), reason="the plan is that of the stable glue"
)


def test_plan_is_the_same_in_every_process() -> None:
    def printed(seed: str) -> str:
        env = environment(PYTHONHASHSEED=seed, PYTHONPATH=str(REPO))
        command = [sys.executable, "-c", PRINT_PLAN, env["PATH"]]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    first = printed("1")
    assert "link glue-" in first
    assert first == printed("2")


@needs_stable_torch
def test_plan_writes_below_its_folder_alone(tmp_path: Path) -> None:
    assert all(step.output.is_relative_to(tmp_path) for step in plan(request(tmp_path)))


@needs_stable_torch
def test_no_two_steps_write_one_file(tmp_path: Path) -> None:
    written = Counter(step.output for step in plan(request(tmp_path)))
    assert {path for path, times in written.items() if times > 1} == set()


@needs_stable_torch
def test_every_input_is_a_source_or_made_before(tmp_path: Path) -> None:
    outputs: set[Path] = set()
    for step in plan(request(tmp_path)):
        unknown = [path for path in step.inputs if path not in outputs and not path.is_file()]
        assert unknown == ([step.inputs[0]] if step.generated is not None else [])
        outputs.add(step.output)


@needs_stable_torch
@pytest.mark.parametrize(
    ("changes", "present", "absent"),
    [
        ({}, "-O3", "-g"),
        ({"DEBUG": "0"}, "-O3", "-g"),
        ({"DEBUG": "1"}, "-O0", "-O3"),
        ({"CXXFLAGS": "-DX='a b'"}, "-DX=a b", "-g"),
    ],
)
def test_variables_reach_the_compiler(
    tmp_path: Path, changes: dict[str, str], present: str, absent: str
) -> None:
    steps = plan(request(tmp_path, **changes))
    (compile_step,) = (s for s in steps if s.name == "compile rms_norm.cpp for kernels-cpu.so")
    assert present in compile_step.command
    assert absent not in compile_step.command


@needs_stable_torch
def test_linker_flags_reach_every_link(tmp_path: Path) -> None:
    steps = plan(request(tmp_path, LDFLAGS="-Wl,-z,noexecstack"))
    links = [step for step in steps if step.name.startswith("link ")]
    assert len(links) == 2
    assert all("-Wl,-z,noexecstack" in step.command for step in links)


def shell(name: str, script: str, inputs: tuple[Path, ...], output: Path) -> Step:
    return Step(name, inputs, output, ("sh", "-c", script))


ODD = {
    "punctuation": "a b$c:d 'e' #f \"g\" \\h; `i`, (j) & k=l* 100%",
    "no UTF-8": os.fsdecode(b"caf\xe9"),
    "newline": "m\nbuild all: phony\nn",
    "carriage return": "o\rp",
    "pipe": "q|r || s",
    "a statement of ninja": "$in ${out}",
    "long": "/".join(["t" * 200] * 10),
}
every_odd_name = pytest.mark.parametrize("name", ODD.values(), ids=ODD)


@every_odd_name
def test_a_step_runs_in_any_path(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    first = folder / "first $x"
    second = folder / "second"
    steps = [
        Step("one", (), first, ("touch", str(first))),
        Step("two", (first,), second, ("cp", str(first), str(second))),
    ]
    execute(steps, folder / "ninja", jobs=2, log=lambda _: None)
    assert second.is_file()


@every_odd_name
def test_a_compiler_works_in_any_path(tmp_path: Path, name: str) -> None:
    """The build record alone: a real compiler with its depfile, and a real linker."""
    folder = tmp_path / name
    steps = plan(BuildRequest(folder, PROJECT, env=environment()))
    (record,) = (step for step in steps if step.name.startswith("compile record.cpp"))
    link = steps[-1]
    objects = [str(path) for path in link.inputs if path != record.output]
    command = tuple(word for word in link.command if word not in objects)
    alone = Step(link.name, (record.output,), link.output, command)
    execute([record, alone], folder / "ninja", log=lambda _: None)
    assert read_binary(link.output).record is not None


@pytest.mark.parametrize("variable", ["CXX", "CXXFLAGS", "LDFLAGS"])
def test_a_quote_without_an_end_is_named(tmp_path: Path, variable: str) -> None:
    with pytest.raises(BuildError, match=rf"{variable}=.* cannot be split .* each quote closed"):
        plan(BuildRequest(tmp_path, PROJECT, env=environment(**{variable: "g++ 'x"})))


INJECTIONS = {
    "substitution": "'$(touch {0})'",
    "backticks": "'`touch {0}`'",
    "semicolons": "';' touch {0} ';'",
    # Ends the command in a build.ninja, and begins a rule and a build of its own.
    "ninja": "'x\nrule y\n  command = touch {0}\nbuild {0}: y\nrule z\n  command = '",
}


@pytest.mark.parametrize("variable", ["CXXFLAGS", "LDFLAGS"])
@pytest.mark.parametrize("template", INJECTIONS.values(), ids=INJECTIONS)
@pytest.mark.parametrize("with_ninja", [True, False])
def test_a_variable_runs_no_shell_command(
    tmp_path: Path, variable: str, template: str, with_ninja: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_ninja:
        monkeypatch.setattr(sys.modules[execute_package.__module__], "find_ninja", lambda: None)
    victim = tmp_path / "victim"
    out = tmp_path / "out"
    env = environment(**{variable: template.format(victim)})
    with suppress(BuildError):
        steps = plan(BuildRequest(out, PROJECT, env=env))
        execute([step for step in steps if "record" in step.name], out, log=lambda _: None)
        execute([replace(steps[-1], inputs=())], out, log=lambda _: None)
    assert not victim.exists()


def test_a_compiler_may_say_any_byte(tmp_path: Path) -> None:
    compiler = tmp_path / "c++"
    compiler.write_bytes(b"#!/bin/sh\nprintf 'g++ (caf\xe9) 13.2.0\\n'\n")
    compiler.chmod(0o755)
    steps = plan(BuildRequest(tmp_path, PROJECT, env=environment(CXX=str(compiler))))
    assert steps[0].command[0] == str(compiler)


def test_max_jobs_bounds_what_runs_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "1")
    lock = tmp_path / "lock"
    steps = [
        # mkdir fails while another of these is at work.
        shell(str(k), f"mkdir '{lock}' && sleep 0.2 && rmdir '{lock}' && touch {k}", (), Path(k))
        for k in "abcd"
    ]
    monkeypatch.chdir(tmp_path)
    execute(steps, tmp_path, log=lambda _: None)


def _error_then(lines: int) -> str:
    return f"echo begin; echo 'op.cpp:1: error: no memory'; seq {lines}; exit 1"


@pytest.mark.parametrize("lines", [5, 59, 60, 64, 68, 69, 70, 900])
def test_failure_shows_the_first_error_and_the_last_lines(
    lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows from one error is often longer than what anybody would read."""
    monkeypatch.setattr(sys.modules[execute_package.__module__], "find_ninja", lambda: None)
    step = shell("one", _error_then(lines), (), tmp_path / "out")
    with pytest.raises(BuildError) as failure:
        execute([step], tmp_path, log=lambda _: None)
    said = str(failure.value).splitlines()[1:-1]
    assert said.count("op.cpp:1: error: no memory") == 1
    assert said[-lines:][-60:] == [str(number + 1) for number in range(lines)][-60:]
    assert len(said) == (lines + 2 if lines < 59 else min(lines + 1, 71))


@pytest.mark.parametrize("with_ninja", [True, False])
def test_failure_shows_the_compilers_words_and_what_to_do(
    with_ninja: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_ninja:
        monkeypatch.setattr(sys.modules[execute_package.__module__], "find_ninja", lambda: None)
    broken = shell("compile x.cpp", "echo 'x.cpp: No space left on device'; exit 4", (), Path("x"))
    with pytest.raises(BuildError) as caught:
        execute([broken], tmp_path, log=lambda _: None)
    assert "x.cpp: No space left on device" in str(caught.value)
    assert str(caught.value).endswith("free some disk space and run the same command again")


def test_an_instruction_that_a_gpu_lacks_is_answered_by_the_architectures(tmp_path: Path) -> None:
    """In the words of ptxas 13.0 for cp.async on sm_75."""
    said = "line 21; error   : Feature 'cp.async.wait_all' requires .target sm_80 or higher"
    step = shell("compile op.cu", f'echo "{said}"; exit 255', (), tmp_path / "out")
    with pytest.raises(BuildError, match=r"`archs:` in build_matrix\.yaml, or out of TORCH_CUDA"):
        execute([step], tmp_path, log=lambda _: None)


def test_a_signal_amid_the_start_of_a_command_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen = subprocess.Popen
    processes: list[subprocess.Popen[str]] = []

    def start_and_be_ended(*arguments, **options) -> subprocess.Popen[str]:
        processes.append(popen(*arguments, **options))
        os.kill(os.getpid(), signal.SIGTERM)
        return processes[-1]

    monkeypatch.setattr(sys.modules[execute_package.__module__], "find_ninja", lambda: None)
    monkeypatch.setattr(subprocess, "Popen", start_and_be_ended)
    step = Step("sleep", (), tmp_path / "out", ("sleep", "60"))
    with pytest.raises(SystemExit):
        execute([step], tmp_path, log=lambda _: None)
    assert [process.returncode for process in processes] == [-signal.SIGTERM]


def test_what_is_up_to_date_is_not_built_again(tmp_path: Path) -> None:
    source = tmp_path / "in"
    output = tmp_path / "out"
    count = tmp_path / "count"
    source.touch()
    steps = [shell("copy", f"echo x >> '{count}'; cp '{source}' '{output}'", (source,), output)]
    for _ in range(3):
        execute(steps, tmp_path / "work", log=lambda _: None)
    assert count.read_text() == "x\n"
    os.utime(source, ns=(source.stat().st_mtime_ns + 10**9,) * 2)
    execute(steps, tmp_path / "work", log=lambda _: None)
    assert count.read_text() == "x\nx\n"


@pytest.mark.parametrize(
    ("called", "links"), [("", True), ("extern int missing(); missing();", False)]
)
def test_glue_of_its_own_leaves_only_openmp_to_torch(tmp_path, called: str, links: bool) -> None:
    torch = find_torch()
    glue = "aten{}{}-abi{}".format(*torch.version_tuple[:2], torch.cxx11_abi)
    request = BuildRequest(tmp_path, PROJECT, glue=glue, torch=torch, env=environment())
    link = [step.command for step in plan(request) if "-shared" in step.command][-1]
    source = tmp_path / "a.cpp"
    source.write_text(f"void f(int* sum) {{\n#pragma omp parallel\n++*sum;\n{called}\n}}\n")
    flags = ["-fPIC", *(word for word in link if word.startswith("-Wl,"))]
    subprocess.run(
        ["g++", "-fopenmp", "-c", *flags[:1], source, "-o", tmp_path / "a.o"], check=True
    )
    command = ["g++", "-shared", *flags, tmp_path / "a.o", "-o", tmp_path / "a.so"]
    process = subprocess.run(command, capture_output=True, text=True)
    assert (process.returncode == 0, "missing" in process.stderr) == (links, not links)


@pytest.mark.parametrize(
    ("lane", "torch", "standard"),
    [("aten", (2, 12), 17), ("aten", (2, 13), 20), ("stable", (2, 15), 17)],
)
def test_older_compilers_are_enough_for_the_stable_lane(
    lane: str, torch: tuple[int, int], standard: int
) -> None:
    assert cxx_standard(lane, torch) == standard
