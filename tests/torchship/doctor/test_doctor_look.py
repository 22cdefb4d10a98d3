"""The command with a look: its blocks, its JSON, `run`, `--try-fix`, and pasted messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from environments import ABSENT, REPO, SYMBOL, doctor_forks, packaging_alone
from looked_environment import LookedEnvironment, diagnose
from sick_environment import SickEnvironment

from torchship.doctor import run_command
from torchship.doctor.environment import pythons
from torchship.doctor.examine import Request, examine
from torchship.doctor.fixes import trying
from torchship.doctor.looking.processes import Python
from torchship.doctor.reasons.meaning import is_of_here
from torchship.doctor.report import blocks
from torchship.doctor.report.report import heading
from torchship.judge import probe_runtime
from torchship.judge.target import Target


@pytest.fixture
def env(tmp_path: Path) -> LookedEnvironment:
    return LookedEnvironment(tmp_path / "env")


def doctor(
    env: LookedEnvironment, *arguments: str, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """torch-doctor on an environment, from its empty folder."""
    code = "import sys; from torchship.doctor.command import main; sys.exit(main())"
    words = (code, "--python", str(env.python), *arguments)
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(env.prefix),
        "PYTHONPATH": f"{REPO}:{packaging_alone()}",
    }
    return doctor_forks().run(*words, cwd=env.folder, env=variables, text=text)


@pytest.fixture
def failing(env: LookedEnvironment) -> LookedEnvironment:
    """One package that fails, one that works."""
    folder = env.add("broken", "import torch\nfrom . import _C\n")
    for name in ("_C", "_D", "_E"):
        env.add_module(folder / f"{name}.so", needs=ABSENT)
    env.list_objects("broken")
    good = env.add("good", "import torch\nfrom . import _C\n", "Requires-Dist: torch==2.13.0")
    env.add_module(good / "_C.so", needs=SYMBOL)
    env.list_objects("good")
    return env


def test_a_package_that_fails_has_one_block(failing: LookedEnvironment) -> None:
    process = doctor(failing)
    assert process.returncode == 1, process.stderr
    lines = process.stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("broken 1.0 does not work"))
    block = lines[start : lines.index("", start)]
    assert len(block) <= 12
    assert f"undefined symbol: {ABSENT}" in " ".join(map(str.strip, block))
    assert [line[:10].strip() for line in block[1:]].count("why:") == 1
    assert [line for line in lines if line.startswith("broken")] == [block[0]]
    assert "works: good 1.0" in lines
    assert "2 packages, 5 imports and files: working: 1, not working: 4, cannot be told: 0" in lines


def test_reading_alone_never_says_works(failing: LookedEnvironment) -> None:
    process = doctor(failing, "--no-import")
    assert "nothing was imported, since --no-import was given" in process.stdout
    assert max(map(len, process.stdout.partition("\n\n")[0].splitlines()[-2:])) <= 100
    said = " ".join(process.stdout.split())
    assert "what the Python of packages does was not looked at" in said
    assert "nothing found by reading: good 1.0" in process.stdout
    assert "works" not in process.stdout.replace("does not work", "")


def test_a_python_that_cannot_be_started_leaves_what_reading_finds(
    failing: LookedEnvironment, tmp_path: Path
) -> None:
    absent = str(tmp_path / "absent-python")
    target = Target(pythons.ask(str(failing.python))._replace(executable=absent))
    report = examine(Request(), probe_runtime(gpu=False, target=target))
    said = "\n".join(heading(report))
    assert "nothing was imported, since this Python cannot be started" in said
    assert absent in said
    assert {row.decided_by for row in report.extensions} == {"reading"}


def test_json_tells_what_was_seen_what_was_read_and_which_decided(
    env: LookedEnvironment,
) -> None:
    folder = env.add("good", "import torch\nfrom . import _C\n")
    env.add_module(folder / "_C.so", needs=SYMBOL)
    env.list_objects("good")
    rows = json.loads(doctor(env, "--json", "good").stdout)["extensions"]
    assert [(row["state"], row["decided_by"]) for row in rows] == [("works", "look")]
    assert rows[0]["seen"]["outcome"] == "worked"
    assert rows[0]["read"]["code"] == "TD113"  # nothing tells its torch: that is no matter here


def test_a_package_whose_folder_has_no_init_works(env: LookedEnvironment) -> None:
    folder = env.add("plain", "")
    (folder / "__init__.py").unlink()
    env.add_module(folder / "_C.so", needs=SYMBOL)
    env.list_objects("plain")
    assert {row.state for row in diagnose(env).rows} == {"works"}


def test_a_named_file_is_only_read(failing: LookedEnvironment) -> None:
    path = failing.site / "good" / "_C.so"
    report = json.loads(doctor(failing, "--json", str(path)).stdout)
    (row,) = report["extensions"]
    assert (row["decided_by"], row["seen"], row["state"]) == ("reading", None, "nothing found")
    assert (report["imported"], report["not_imported_since"]) == (False, "files alone were named")


def test_a_path_is_never_broken(tmp_path: Path) -> None:
    env = LookedEnvironment(tmp_path / ("a folder with a long name " * 5).strip() / "env")
    env.add("odd", "import torch\nraise RuntimeError(__file__)\n")
    report = diagnose(env)
    (row,) = [row for row in report.rows if row.state == "fails"]
    lines = [*blocks.block(row.name, [row], {}, report)]
    assert len(lines) <= 12


def test_a_cause_that_two_packages_share_is_told_once(env: LookedEnvironment) -> None:
    (env.torch / "__init__.py").write_text("raise OSError('broken torch')\n")
    for name in ("one", "two"):
        folder = env.add(name, "import torch\n")
        env.add_module(folder / "_C.so", needs=SYMBOL)
        env.list_objects(name)
    output = doctor(env).stdout
    assert output.count("seen:") == 1
    assert output.count("as torch") == 2


def test_a_command_that_works_is_left_alone(env: LookedEnvironment) -> None:
    process = doctor(env, "run", str(env.python), "-c", "print('done'); raise SystemExit(3)")
    assert (process.returncode, process.stdout, process.stderr) == (3, "done\n", "")


def test_a_command_that_fails_to_import_is_explained(failing: LookedEnvironment) -> None:
    process = doctor(failing, "run", str(failing.python), "-c", "import broken")
    assert process.returncode == 1
    assert f"undefined symbol: {ABSENT}" in process.stderr
    assert "TD115" in process.stdout


def test_a_command_that_dies_has_the_exit_code_of_a_shell() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    ended = run_command.run([sys.executable, "-c", code])
    assert ended.exit_code == 139
    assert ended.is_of_import and "Segmentation fault" in ended.output


def _run_of_two(env: LookedEnvironment, second: str) -> str:
    env.add("plots", "import sys\nimport torch\nsys.is_loud = True\n")
    env.add("graphs", f"import os, sys\nimport torch\n{second}\n")
    (env.folder / "main.py").write_text("import os\nimport torch, plots\nimport graphs\n")
    done = doctor(env, "run", str(env.python), "main.py")
    assert done.returncode != 0
    return done.stdout + done.stderr


@pytest.mark.parametrize("fails", ["os.abort()", "raise RuntimeError('of another plot')"])
def test_two_packages_that_clash_are_told_and_an_order_that_works(
    env: LookedEnvironment, fails: str
) -> None:
    said = _run_of_two(env, f"if hasattr(sys, 'is_loud'):\n    {fails}")
    assert "TD714: import graphs works alone, and fails after import plots" in " ".join(
        said.split()
    )
    assert "import graphs before plots, which works" in " ".join(said.split())
    assert "TD110" not in said


def test_a_package_that_fails_alone_clashes_with_none(env: LookedEnvironment) -> None:
    assert "TD714" not in _run_of_two(env, "os.abort()")


@pytest.mark.parametrize(
    "start", ["#!{}", "#! /usr/bin/env {}", "#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n'''"]
)
def test_the_python_of_a_script_is_judged(tmp_path: Path, start: str) -> None:
    script = tmp_path / "torchrun"
    script.write_text(start.format(sys.executable) + "\nimport torch\n")
    script.chmod(0o755)
    assert run_command.python_of([str(script)]) == sys.executable
    script.write_text("#!/bin/sh\necho python\n")
    assert run_command.python_of([str(script)]) is None
    assert run_command.python_of([sys.executable]) == sys.executable


def test_a_command_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command.run(["/nonexistent/python"]).exit_code == 127
    assert "/nonexistent/python cannot be run" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["0.8.0", "0.7.0"])
def test_a_fix_is_tried_beside_the_environment(tmp_path: Path, version: str) -> None:
    place = SickEnvironment(tmp_path, installer="uv")
    place.publish_torch("2.13.0+cpu")
    source = {"theirs/__init__.py": "from einops import pack\n"}
    place.publish_wheel("theirs", "1.0", source, ["torch", "einops>=0.7"])
    content = "pack = 1\n" if version == "0.8.0" else ""
    place.publish_wheel("einops", version, {"einops/__init__.py": content})
    place.install("torch", "theirs")
    command = "python -m torchship.doctor --try-fix --json theirs || true"
    path = f"{REPO}:{packaging_alone()}"
    report = json.loads(place.type(command, PYTHONPATH=path))
    (row,) = [row for row in report["notices"] if row["state"] == "fails"]
    assert row["mends"] is (version == "0.8.0")
    assert row["tried"] == [f"einops {version}"]
    said = place.type(command.replace("--json ", ""), PYTHONPATH=path)
    result = "fixes" if version == "0.8.0" else "does not fix"
    assert f"tried:   einops {version} {result} the import; " in said
    assert not (place.site / "einops").exists()


@pytest.mark.parametrize(
    "command",
    [
        "/e/bin/python -m pip install 'torch==2.9.*'",
        "conda install einops",
        "rm /x; python -m pip install y",
        "unset LD_LIBRARY_PATH",
    ],
)
def test_only_commands_that_install_packages_are_tried(
    env: LookedEnvironment, command: str
) -> None:
    trial = trying.Trial("json", Python(executable=str(env.python)))
    tried = trial.of_command(command)
    assert tried.mends is None and tried.why_not


def test_a_traceback_of_this_environment_is_explained_by_the_same_reasons(
    env: LookedEnvironment,
) -> None:
    env.add("user", "import torch\nimport einops\n", "Requires-Dist: einops>=0.7")
    traceback = (
        "Traceback (most recent call last):\n"
        f'  File "{env.site}/user/__init__.py", line 2, in <module>\n    import einops\n'
        "ModuleNotFoundError: No module named 'einops'\n"
    )
    report = json.loads(doctor(env, "--json", "-", text=traceback).stdout)
    assert report["reason"]["code"] == "TD707"
    assert report["reason"]["needed"] == "einops>=0.7"


@pytest.mark.parametrize(
    "line",
    [
        "ImportError: /elsewhere/site-packages/x/_C.so: undefined symbol: _ZN2at1fEv",
        r"OSError: [WinError 126] C:\envs\lib\site-packages\torch\lib\c10.dll",
        "ImportError: dlopen(/opt/x.dylib): symbol not found",
    ],
)
def test_a_message_of_another_machine_is_not_judged_by_this_one(line: str) -> None:
    assert not is_of_here(line)
