"""Makes the environment of a case, runs its code and the doctor in it, and carries out a fix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measurements.environments.cases import Case

REPO = Path(__file__).resolve().parents[2]
SECONDS_TO_LOAD = 300
SECONDS_TO_INSTALL = 1200
#: What commands of the cases may call; `$SHARED` keeps what one torch compiles for all of them.
PRELUDE = Path(__file__).with_name("prelude.sh")
DOCTOR = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from torchship.doctor.command import main; sys.exit(main())"
)


@dataclass(frozen=True)
class Run:
    """How a process ended."""

    succeeds: bool
    error: str
    """Its last line of output; "" if it succeeds."""
    output: str = ""


@dataclass(frozen=True)
class Verdict:
    """What the doctor says of an environment."""

    state: str
    """`works`, `fails` or `unknown`: the worst row of the report."""
    code: str = ""
    why: str = ""
    commands: tuple[str, ...] = ()
    """Of the rows that fail or cannot be told, in the order of the report."""


class Environment:
    """A copy of an environment with torch alone, which a case then changes.

    Files are hard links to those of the other: commands replace files, and change none in place.
    """

    def __init__(self, base: Path, folder: Path, case: Case) -> None:
        self.case = case
        self.prefix = folder / "env"
        self.work = folder / "work"
        self.home = folder / "home"
        self._folder = folder
        self._base = base
        #: Commands of fixes that change the shell alone, such as `unset LD_LIBRARY_PATH`.
        self._of_shell: list[str] = []

    def make(self) -> None:
        """Raises RuntimeError if a command of the case fails."""
        self.remove()
        for folder in (self._folder, self.work, self.home):
            folder.mkdir(parents=True)
        subprocess.run(["cp", "-al", self._base, self.prefix], check=True)
        run = self.run(f"set -e; . {PRELUDE}\n{self.case.make}", SECONDS_TO_INSTALL, is_bare=True)
        if not run.succeeds:
            raise RuntimeError(f"{self.case.name} cannot be made:\n{run.output[-3000:]}")

    def remove(self) -> None:
        for mount in Path("/proc/mounts").read_text().splitlines():
            place = mount.split()[1]
            if place.startswith(f"{self._folder}/"):
                subprocess.run(["umount", place], check=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def load(self) -> Run:
        """Run the code of the case."""
        return self.run('exec python -c "$CODE"', SECONDS_TO_LOAD)

    def judge(self, doctor: Path = REPO, options: str = "") -> Verdict:
        """Ask the doctor of the package torchship in a folder. Raises RuntimeError if it fails."""
        arguments = f'"{sys.executable}" -I -c "$DOCTOR" "{doctor}" {options} --json --python'
        run = self.run(f'exec {arguments} "$(command -v python)"', SECONDS_TO_LOAD)
        try:
            report = json.loads(run.output[run.output.index("{") :])
        except ValueError as error:
            raise RuntimeError(f"{self.case.name}: the doctor failed: {run.output}") from error
        return verdict_of(report)

    def carry_out(self, command: str) -> Run:
        """Type the command of a fix into a shell, and then run the code of the case in it."""
        changes_shell = command.startswith(("unset ", "export "))
        if changes_shell:
            self._of_shell.append(command)
            return self.load()
        run = self.run(command, SECONDS_TO_INSTALL)
        return self.load() if run.succeeds else run

    def run(self, script: str, seconds: int, *, is_bare: bool = False) -> Run:
        """Run a script in the folder of work; `is_bare` leaves the case's own variables out."""
        lines = [*self._of_shell, script]
        try:
            process = subprocess.run(
                ["bash", "-c", "\n".join(lines)],
                cwd=self.work,
                env=self._variables(is_bare=is_bare),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return Run(succeeds=False, error=f"still running after {seconds} s")
        output = process.stdout
        if process.returncode == 0:
            return Run(succeeds=True, error="", output=output)
        return Run(succeeds=False, error=_last_line(output, process.returncode), output=output)

    def _variables(self, *, is_bare: bool) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("PIP_", "UV_")) or name in ("SSL_CERT_FILE", "LANG")
        }
        variables = {
            **kept,
            "PATH": f"{self.prefix / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin:/sbin",
            "HOME": str(self.home),
            "ENV": str(self.prefix),
            "SITE": str(next((self.prefix / "lib").glob("python*/site-packages"), self.prefix)),
            "WORK": str(self.work),
            "SHARED": str(self._base.parent / f"shared-{self._base.name}"),
            "CODE": self.case.load,
            "DOCTOR": DOCTOR,
            "PACK": str(Path(__file__).with_name("pack.py")),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_COMPILE": "1",
            "PIP_RETRIES": "0",
            "PIP_DEFAULT_TIMEOUT": "15",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_CACHE_DIR": str(self._base.parent / "pip-cache"),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv")),
            "UV_NO_PROGRESS": "1",
        }
        links = [*kept.get("PIP_FIND_LINKS", "").split(), str(self.home / "wheels")]
        variables["PIP_FIND_LINKS"] = " ".join(links)
        variables["UV_FIND_LINKS"] = ",".join(links[:-1])
        if not is_bare:
            for name, value in self.case.environ.items():
                for variable in ("ENV", "SITE", "WORK", "HOME"):
                    value = value.replace(f"${variable}", variables[variable])
                variables[name] = value
        return variables


def verdict_of(report: dict[str, list[dict[str, object]]]) -> Verdict:
    """The verdict on the whole environment, out of the doctor's JSON."""
    rows = [*report["extensions"], *report["notices"]]
    for state in ("fails", "unknown"):
        chosen = [row for row in rows if row["state"] == state]
        if chosen:
            causes = [row["cause"] for row in chosen if isinstance(row["cause"], dict)]
            return Verdict(
                state=state,
                code=str(chosen[0]["code"]),
                why=str(causes[0]["why"]),
                commands=_commands(causes),
            )
    return Verdict(state="works")


def _commands(causes: Sequence[dict[str, object]]) -> tuple[str, ...]:
    commands = (str(cause.get("command") or "") for cause in causes)
    return tuple(dict.fromkeys(filter(None, commands)))


def _last_line(output: str, status: int) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "error" in line]
    line = (errors or lines or [""])[-1]
    return f"{line[:300]} (status {status})" if status < 0 or not line else line[:300]
