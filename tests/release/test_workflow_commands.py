"""Every command that a workflow runs is understood by the program that it starts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from release_places import REPO
from workflow_commands import FOREIGN, NESTED, Command, Sandbox, commands_of, parse

from torchship.release import ReleaseError
from torchship.release.matrix import cibuildwheel
from torchship.release.matrix.cells import all_cells, select

if shutil.which("jq") is None:
    pytest.skip("jq is not on this machine; GitHub's have it", allow_module_level=True)

# runpy's, of a module that another test has imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules")

WORKFLOWS = sorted((REPO / ".github" / "workflows").glob("*.yml"))
#: Modules of others that are run by `python -m`.
FOREIGN_MODULES = ("cibuildwheel", "pip", "sphinx", "venv")


@pytest.fixture
def sandbox(tmp_path: Path, matrix) -> Sandbox:
    cells = [
        {
            "cell": cell.name,
            "glue": cell.glue,
            "device": cell.device,
            "torch": cell.torch.release,
            "optional": cell.optional,
        }
        for cell in all_cells(matrix)
    ]
    return Sandbox(tmp_path, cells)


def check(command: Command, sandbox: Sandbox, matrix) -> None:
    """Fails if a program of ours does not understand the command."""
    program, arguments = command
    if program in NESTED:
        for inner in sandbox.nested(command):
            check(inner, sandbox, matrix)
    elif program == "scripts/build_all.sh":
        options = parse("torchship.release", arguments)
        special = {"newest", "oldest", "host", "all"}
        names = getattr(options, "selectors", ())  # `merge` and `upload` have none
        assert select(all_cells(matrix), [name for name in names if name not in special])
    elif program == "torchship/release/launch/gather_release.sh":
        assert {word.partition("=")[0] for word in arguments[1:]} == {*matrix.platforms}
    elif program == "scripts/lint.sh":
        assert arguments in ((), ("--fix",))
    elif program == "pytest":
        check_pytest(arguments, sandbox.folder)
    elif program == "python":
        check_python(arguments)
    else:
        assert program in (*FOREIGN, "nproc"), f"{command}: who is that?"


def check_python(arguments: tuple[str, ...]) -> None:
    match arguments:
        case ("-m", module, *rest) if module not in FOREIGN_MODULES:
            parse(module, rest)
        case ("torchship/release/launch/run_module.py", "torchship.release.start", module, *rest):
            parse(module, rest)
        case (path, *rest) if path.endswith(".py"):
            parse(path.removesuffix(".py").replace("/", "."), rest)
        case ("-c" | "--version", *_):
            pass  # Python's own options
        case _:
            assert arguments[:1] == ("-m",) and arguments[1] in FOREIGN_MODULES, arguments


def check_pytest(arguments: tuple[str, ...], folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-n0", "--collect-only", *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, result.stdout + result.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_of_a_workflow_is_understood(path: Path, sandbox: Sandbox, matrix) -> None:
    commands = dict.fromkeys(commands_of(path, sandbox))
    assert commands
    for command in commands:
        check(command, sandbox, matrix)


def test_every_step_of_cibuildwheel_is_understood(sandbox: Sandbox, settings, matrix) -> None:
    steps = [
        line for line in cibuildwheel.table(settings).splitlines() if "cibuildwheel.sh" in line
    ]
    assert len(steps) == 4
    for line in steps:
        _, *arguments = line.partition('"')[2].rstrip('"').split()
        check(Command("scripts/cibuildwheel.sh", tuple(arguments)), sandbox, matrix)


@pytest.mark.parametrize(
    "command",
    [
        "scripts/build_all.sh --shard",
        "scripts/build_all.sh --no-such-option",
        "scripts/build_all.sh no-such-cell",
        "scripts/cibuildwheel.sh after-all",
        "scripts/docs.sh --no-such-option",
        "scripts/test.sh --torch 2.15.0 --no-such-option",
        "pytest --no-such-option",
        "python -m torchship.release.steps.conda.worker install build/torch",
        'python -m torchship.release.steps.conda.worker install {"prefix":"build/torch"} --channel',
        "python -m torchship.release.steps.conda.worker mend",
        "python -m benchmarks grid stairs",
        "no-such-program",
    ],
)
def test_a_command_that_nobody_understands_is_seen(command: str, sandbox: Sandbox, matrix) -> None:
    program, *arguments = command.split()
    with pytest.raises((AssertionError, pytest.fail.Exception, ReleaseError)):
        check(Command(program, tuple(arguments)), sandbox, matrix)
