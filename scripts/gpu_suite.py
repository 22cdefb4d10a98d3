"""Runs everything that needs a GPU and writes the results as data.

    python3 scripts/gpu_suite.py --out benchmarks/results/gpu [--wheel FILE] [PYTEST ARGUMENT ...]

Needs an NVIDIA GPU; a CUDA build of torch, nvcc, pytest, hypothesis and cffi in the running Python;
and compute-sanitizer, which comes with CUDA. It installs lltm into build/gpu-site; runs the tests
marked `cuda`, and a subset of them under each sanitizer; then calls layers 10,000 times on two
streams at once. The exit code is 0 only if every part passed.
"""

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
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "gpu-site"
SUITES = ("tests/op", "tests/cuda", "tests/layer", "tests/compat/test_compat_gpu.py")
SOAK_CALLS = 10_000
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
# Makes every tensor an allocation of its own, so that sanitizers find an access past its end.
NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
TOTALS = re.compile(r"\d+ passed|\d+ failed|ERROR SUMMARY|RACECHECK SUMMARY")
FACTS = """
import json, torch
gpu = torch.cuda.get_device_properties(0)
print(json.dumps(dict(torch=torch.__version__, cuda=torch.version.cuda, gpu=gpu.name,
    gpus=torch.cuda.device_count(), compute_capability=f"{gpu.major}.{gpu.minor}")))
"""


def capture(*command: str) -> str | None:
    """The command's output; None where it cannot be run or fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()


def machine() -> dict[str, object]:
    facts = capture(sys.executable, "-c", FACTS)
    if facts is None:
        raise SystemExit("no GPU that torch sees: run this where torch.cuda.is_available()")
    driver = "--query-gpu=driver_version"
    return {
        **json.loads(facts),
        "driver": capture("nvidia-smi", driver, "--format=csv,noheader", "-i", "0") or "unknown",
        "nvcc": (capture("nvcc", "--version") or "unknown").splitlines()[-1],
        "python": platform.python_version(),
    }


class Suite:
    """The parts that were run, stored after each: an interrupted run keeps its results."""

    def __init__(self, out: Path, command: list[str], wheel: Path | None) -> None:
        self.out = out
        self.parts: dict[str, dict[str, object]] = {}
        self._lock = Lock()
        git = ("git", "-C", str(ROOT))
        # For a copy of the sources without their .git, LLTM_CONDA_GIT_COMMIT names the commit.
        named = os.environ.get("LLTM_CONDA_GIT_COMMIT")
        commit = named or capture(*git, "rev-parse", "HEAD")
        changed = None if named else capture(*git, "diff", "--name-only", "HEAD")
        self._facts = {
            "schema": 1,
            "command": self._shown(command),
            "commit": commit or "unknown",
            "wheel": wheel.name if wheel else None,
            "modified": None if changed is None else changed.splitlines(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": machine(),
        }

    def _shown(self, command: list[str]) -> str:
        text = re.sub(r"\S+/(?=[^/\s]+\.whl)", "", shlex.join(command))
        for path, name in ((sys.executable, "python3"), (self.out, "OUT"), (ROOT, ".")):
            text = re.sub(re.escape(str(path)) + r"(?![\w-])", name, text)
        return text

    def run(
        self, name: str, command: list[str], timeout: int, cwd: Path = ROOT, **variables: str
    ) -> bool:
        """Runs one command, with its log beside the results; says whether it passed."""
        print(f"== {name}: {shlex.join(command)}", flush=True)
        path = os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, **variables, "PYTHONPATH": path}
        log = self.out / f"{name}.log"
        start = time.monotonic()
        with log.open("w") as file:
            limited = ["timeout", "--kill-after=10", str(timeout), *command]  # exits with 124
            done = subprocess.run(limited, cwd=cwd, env=env, stdout=file, stderr=subprocess.STDOUT)
        lines = log.read_text(errors="replace").splitlines()
        print("\n".join([*lines[-12:], f"-- {name}: exit code {done.returncode}"]), flush=True)
        totals = [line for line in lines if TOTALS.search(line)] or lines
        part: dict[str, object] = {
            "command": self._shown(command),
            "exit_code": done.returncode,
            "seconds": round(time.monotonic() - start, 1),
            "summary": totals[-1].strip("= ") if totals else "",
            "sanitizer_summary": [line for line in lines if "SUMMARY" in line],
        }
        if name == "soak":  # this program prints its findings as JSON
            found = [line for line in lines if line.startswith("{")]
            part["found"] = json.loads(found[-1]) if found else None
        with self._lock:
            self.parts[name] = part
            text = json.dumps({**self._facts, "parts": self.parts}, indent=2)
            (self.out / "gpu_suite.json").write_text(text + "\n")
        return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--wheel", type=Path, help="install this wheel instead of compiling")
    parser.add_argument("tests", nargs="*", help="further arguments for pytest")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    suite = Suite(out, ["python3", *sys.argv], arguments.wheel)

    shutil.rmtree(SITE, ignore_errors=True)
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
    source = str(arguments.wheel.resolve()) if arguments.wheel else "."
    if suite.run("install", [*install, "--target", str(SITE), source], 600):
        suite.run("diagnosis", [sys.executable, "-m", "lltm_conda"], 120, cwd=out)
        # -P: the checkout's lltm_conda, which has no binaries, must not hide the installed one.
        python = [sys.executable, "-P"]
        pytest = [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cuda"]
        once = ["--deselect", "tests/layer/test_layer_soak.py"]  # the last part
        tests = [*pytest, *SUITES, *once, *arguments.tests]
        jobs = [partial(suite.run, "tests", tests, 420)]
        for tool in SANITIZERS:
            sanitizer = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
            command = [*sanitizer, *pytest, "tests/cuda/test_cuda_sanitizer_subset.py"]
            jobs.append(partial(suite.run, tool, command, 420, **NO_CACHING))
        with ThreadPoolExecutor(len(jobs)) as pool:  # a single job leaves the GPU mostly idle
            list(pool.map(lambda job: job(), jobs))
        soak = ["tests/layer/layer_soak.py", "--calls", str(SOAK_CALLS)]
        suite.run("soak", [*python, *soak], 240)
    passed = sum(part["exit_code"] == 0 for part in suite.parts.values())
    print(f"{passed} passed, {len(suite.parts) - passed} failed")
    return 0 if passed == len(suite.parts) else 1


if __name__ == "__main__":
    sys.exit(main())
