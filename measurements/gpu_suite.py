"""Runs the tests that need a GPU, the sanitizers and a soak, and writes the results as JSON.

    python3 -m measurements.gpu_suite --out measurements/results/gpu [--wheel FILE]
        [--parts PART ...] [-- PYTEST ARGUMENT ...]

The script needs an NVIDIA GPU; a CUDA build of torch, pytest, hypothesis and cffi in the
running Python; and CUDA's compute-sanitizer and, without --wheel, nvcc. It installs lltm into
build/gpu-site; runs tests marked `cuda`, and a subset of them under each sanitizer; then, as
the soak, calls layers 10,000 times on two streams at once. The exit code is 0 only if all
parts passed. With --parts it runs these alone (and installs the package); the results of the
other parts stay, if they are of the same commit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "gpu-site"
SUITES = (
    "tests/op",
    "tests/cuda",
    "tests/layer",
    "tests/compat/test_compat_gpu.py",
)
#: These compile small extensions.
CLIENTS = ("tests/torchship/clients/test_kit.py", "tests/torchship/clients/test_existing_code.py")
SOAK_TEST = "tests/layer/test_layer_soak.py"
SANITIZED = "tests/cuda/test_cuda_sanitizer_subset.py"
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
# initcheck misses the bulk stores of cuBLAS's kernels for 16 bits.
SEEN_BY_INITCHECK = "not planes and (not float16 or rows or tensor)"
# Every tensor gets an allocation of its own, so that a sanitizer finds an access past its
# end.
NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
TOTALS = re.compile(r"\d+ passed|\d+ failed|ERROR SUMMARY|RACECHECK SUMMARY")
TEST_FAILURES = re.compile(r"\d+ failed|\d+ errors? in ")
HAZARD_FOUND = 9  # the exit code of a sanitizer that found something
# The slowest sanitizer; with one process it takes longer than all other parts together.
RACECHECK_PROCESSES = "4"
HAZARD = re.compile(r"(?:Read|Write) access at (\S+?)\+0x")
FACTS = """
import json, torch
gpu = torch.cuda.get_device_properties(0)
print(json.dumps(dict(torch=torch.__version__, cuda=torch.version.cuda, gpu=gpu.name,
    gpus=torch.cuda.device_count(), compute_capability=f"{gpu.major}.{gpu.minor}")))
"""


def capture(*command: str) -> str | None:
    """The command's output; None if the command does not start, fails or takes over two minutes."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()


def describe_machine() -> dict[str, object]:
    facts = capture(sys.executable, "-c", FACTS)
    if facts is None:
        raise SystemExit("no torch sees a GPU; run this where torch.cuda.is_available() is True")
    query = ("--query-gpu=driver_version", "--format=csv,noheader")
    driver = capture("nvidia-smi", *query, "-i", "0")
    compiler = capture("nvcc", "--version") or "unknown"
    return {
        **json.loads(facts),
        "driver": driver or "unknown",
        "nvcc": compiler.splitlines()[-1],
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class Part:
    """A command of the suite."""

    name: str
    command: list[str]
    timeout: int
    """In seconds."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the command's environment has beside the suite's own."""


@dataclass(frozen=True)
class Outcome:
    """What a part's log says."""

    command: str
    exit_code: int
    passed: bool
    hazards_in: list[str]
    """The kernels in which racecheck saw a hazard."""
    seconds: float
    summary: str
    sanitizer_summary: list[str]


def judge(lines: list[str], command: str, exit_code: int, seconds: float) -> Outcome:
    """Hazards that racecheck reports inside cuBLAS's own kernels, nvjet_..., are no failure."""
    totals = [line for line in lines if TOTALS.search(line)] or lines or [""]
    hazards = sorted({kernel for line in lines for kernel in HAZARD.findall(line)})
    are_of_cublas = bool(hazards) and all(kernel.startswith("nvjet_") for kernel in hazards)
    tests_passed = not any(TEST_FAILURES.search(line) for line in lines)
    return Outcome(
        command=command,
        exit_code=exit_code,
        passed=exit_code == (HAZARD_FOUND if are_of_cublas and tests_passed else 0),
        hazards_in=hazards,
        seconds=round(seconds, 1),
        summary=totals[-1].strip("= "),
        sanitizer_summary=[line for line in lines if "SUMMARY" in line],
    )


class Suite:
    """The parts that have run, stored after each part, so that an interrupted suite keeps them."""

    def __init__(self, out: Path, wheel: Path | None) -> None:
        self.out = out
        self.passed: dict[str, bool] = {}
        self._lock = Lock()
        git = ("git", "-C", str(ROOT))
        # For a copy of the sources without its .git, LLTM_CONDA_GIT_COMMIT names the commit.
        commit = os.environ.get("LLTM_CONDA_GIT_COMMIT")
        changed = None if commit else capture(*git, "diff", "--name-only", "HEAD")
        machine = describe_machine()
        self.gpus = int(str(machine["gpus"]))
        self._facts = {
            "schema": 1,
            "command": self._shown(["python3", *sys.argv]),
            "commit": commit or capture(*git, "rev-parse", "HEAD") or "unknown",
            "wheel": wheel.name if wheel else None,
            "modified": None if changed is None else changed.splitlines(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": machine,
        }
        self._documents = self._earlier_parts()

    def _earlier_parts(self) -> dict[str, dict[str, object]]:
        """What is stored of the same commit on the same machine."""
        path = self.out / "gpu_suite.json"
        if not path.exists():
            return {}
        stored = json.loads(path.read_text())
        if any(stored.get(name) != self._facts[name] for name in ("commit", "machine", "modified")):
            return {}
        parts: dict[str, dict[str, object]] = stored["parts"]
        return parts

    def _shown(self, command: list[str]) -> str:
        """The command without the folders of this machine."""
        masked = re.sub(r"\S+/(?=[^/\s]+\.whl)", "", shlex.join(command))
        for path, name in ((sys.executable, "python3"), (self.out, "OUT"), (ROOT, ".")):
            masked = re.sub(re.escape(str(path)) + r"(?![\w-])", name, masked)
        return masked

    def run(self, part: Part) -> bool:
        """Runs one part, with its log beside the results; returns whether it passed."""
        print(f"== {part.name}: {shlex.join(part.command)}", flush=True)
        path = os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, **part.variables, "PYTHONPATH": path}
        log = self.out / f"{part.name}.log"
        start = time.monotonic()
        with log.open("w") as file:
            limited = ["timeout", "--kill-after=10", str(part.timeout), *part.command]
            run = subprocess.run(
                limited, cwd=ROOT, env=env, stdout=file, stderr=subprocess.STDOUT, check=False
            )
        seconds = time.monotonic() - start
        lines = log.read_text(errors="replace").splitlines()
        print(*lines[-12:], f"-- {part.name}: exit code {run.returncode}", sep="\n", flush=True)
        outcome = judge(lines, self._shown(part.command), run.returncode, seconds)
        document: dict[str, object] = asdict(outcome)
        if part.name == "soak":  # the test prints its findings as JSON
            findings = [line for line in lines if line.startswith("{")]
            document["found"] = json.loads(findings[-1]) if findings else None
        self._store(part.name, outcome, document)
        return outcome.passed

    def _store(self, name: str, outcome: Outcome, document: dict[str, object]) -> None:
        with self._lock:
            self.passed[name] = outcome.passed
            self._documents[name] = document
            content = json.dumps({**self._facts, "parts": self._documents}, indent=2)
            (self.out / "gpu_suite.json").write_text(content + "\n")


def make_test_parts(python: list[str], last_gpu: int, pytest_arguments: list[str]) -> list[Part]:
    """The tests, and the sanitizers on the last GPU."""
    pytest = [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cuda"]
    without_soak = ["--deselect", SOAK_TEST]  # the soak runs last
    tests = [*pytest, *SUITES, *without_soak, *pytest_arguments]
    clients = [*pytest, *CLIENTS, "-n", "4"]
    parts = [Part("tests", tests, timeout=540), Part("clients", clients, timeout=540)]
    variables = {**NO_CACHING, "CUDA_VISIBLE_DEVICES": str(last_gpu)}
    for tool in SANITIZERS:
        sanitizer = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(HAZARD_FOUND)]
        sanitizer += ["--show-backtrace", "device"]  # the host's takes seconds each
        sanitizer += ["--target-processes", "all"]
        command = [*sanitizer, *pytest, SANITIZED]
        if tool == "initcheck":
            command += ["-k", SEEN_BY_INITCHECK]
        if tool == "racecheck":
            command += ["-n", RACECHECK_PROCESSES]
        parts.append(Part(tool, command, timeout=540, variables=variables))
    return parts


def main() -> int:
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--wheel", type=Path, help="install this wheel instead of compiling")
    names = ("tests", "clients", *SANITIZERS, "soak")
    parser.add_argument("--parts", nargs="+", choices=names, default=names, help="run these alone")
    parser.add_argument("tests", nargs="*", help="further arguments for pytest")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    suite = Suite(out, arguments.wheel)

    shutil.rmtree(SITE, ignore_errors=True)
    # -P: the checkout's lltm_conda, which has no binaries, must not hide the installed
    # package.
    python = [sys.executable, "-P"]
    source = str(arguments.wheel.resolve()) if arguments.wheel else "."
    install = [*python, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
    if suite.run(Part("install", [*install, "--target", str(SITE), source], timeout=600)):
        suite.run(Part("diagnosis", [*python, "-m", "lltm_conda"], timeout=120))
        possible = make_test_parts(python, suite.gpus - 1, arguments.tests)
        parts = [part for part in possible if part.name in arguments.parts]
        with ThreadPoolExecutor(len(possible)) as pool:  # a single part leaves the GPU mostly idle
            list(pool.map(suite.run, parts))
        if "soak" in arguments.parts:
            pytest = [*python, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
            suite.run(Part("soak", [*pytest, "-m", "cuda and slow", SOAK_TEST], timeout=240))
    passed = sum(suite.passed.values())
    print(f"{passed} passed, {len(suite.passed) - passed} failed")
    return 0 if all(suite.passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
