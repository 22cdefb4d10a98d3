"""Runs the tests that need a GPU, the sanitizers and a soak, and writes the results as JSON.

    python3 scripts/gpu_suite.py --out benchmarks/results/gpu [--wheel FILE] [PYTEST ARGUMENT ...]

The script needs an NVIDIA GPU; a CUDA build of torch, pytest, hypothesis and cffi in the running
Python; and CUDA's compute-sanitizer and, without --wheel, nvcc. It installs lltm into
build/gpu-site; runs tests marked `cuda`, and a subset of them under each sanitizer; then, as the
soak, calls layers 10,000 times on two streams at once. The exit code is 0 only if all parts passed.
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
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "gpu-site"
SUITES = ("tests/op", "tests/cuda", "tests/layer", "tests/compat/test_compat_gpu.py")
# Every tensor gets an allocation of its own, so that a sanitizer finds an access past its end.
NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
TOTALS = re.compile(r"\d+ passed|\d+ failed|ERROR SUMMARY|RACECHECK SUMMARY")
FOUND = 9  # the exit code of a sanitizer that found something
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


def machine() -> dict[str, object]:
    facts = capture(sys.executable, "-c", FACTS)
    if facts is None:
        raise SystemExit("no torch sees a GPU; run this where torch.cuda.is_available() is True")
    driver = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0")
    return {
        **json.loads(facts),
        "driver": capture(*driver) or "unknown",
        "nvcc": (capture("nvcc", "--version") or "unknown").splitlines()[-1],
        "python": platform.python_version(),
    }


class Suite:
    """The parts that have run, stored after each part, so that an interrupted suite keeps them."""

    def __init__(self, out: Path, wheel: Path | None) -> None:
        self.out = out
        self.parts: dict[str, dict[str, object]] = {}
        self._lock = Lock()
        git = ("git", "-C", str(ROOT))
        # For a copy of the sources without its .git, LLTM_CONDA_GIT_COMMIT names the commit.
        named = os.environ.get("LLTM_CONDA_GIT_COMMIT")
        changed = None if named else capture(*git, "diff", "--name-only", "HEAD")
        facts = machine()
        self.gpus = int(str(facts["gpus"]))
        self._facts = {
            "schema": 1,
            "command": self._shown(["python3", *sys.argv]),
            "commit": named or capture(*git, "rev-parse", "HEAD") or "unknown",
            "wheel": wheel.name if wheel else None,
            "modified": None if changed is None else changed.splitlines(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": facts,
        }

    def _shown(self, command: list[str]) -> str:
        """The command without the folders of this machine."""
        text = re.sub(r"\S+/(?=[^/\s]+\.whl)", "", shlex.join(command))
        for path, name in ((sys.executable, "python3"), (self.out, "OUT"), (ROOT, ".")):
            text = re.sub(re.escape(str(path)) + r"(?![\w-])", name, text)
        return text

    def run(self, name: str, command: list[str], timeout: int, **variables: str) -> bool:
        """Runs one command, with its log beside the results; returns whether it passed.

        Hazards that racecheck reports inside cuBLAS's own kernels, nvjet_..., are no failure.
        """
        print(f"== {name}: {shlex.join(command)}", flush=True)
        path = os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, **variables, "PYTHONPATH": path}
        log, start = self.out / f"{name}.log", time.monotonic()
        with log.open("w") as file:
            limited = ["timeout", "--kill-after=10", str(timeout), *command]
            run = subprocess.run(limited, cwd=ROOT, env=env, stdout=file, stderr=subprocess.STDOUT)
        lines = log.read_text(errors="replace").splitlines()
        print("\n".join([*lines[-12:], f"-- {name}: exit code {run.returncode}"]), flush=True)
        totals = [line for line in lines if TOTALS.search(line)] or lines or [""]
        hazards = sorted({name for line in lines for name in HAZARD.findall(line)})
        of_cublas = bool(hazards) and all(name.startswith("nvjet_") for name in hazards)
        tests_passed = not any(re.search(r"\d+ failed|\d+ errors? in ", line) for line in lines)
        part: dict[str, object] = {
            "command": self._shown(command),
            "exit_code": run.returncode,
            "passed": run.returncode == (FOUND if of_cublas and tests_passed else 0),
            "hazards_in": hazards,
            "seconds": round(time.monotonic() - start, 1),
            "summary": totals[-1].strip("= "),
            "sanitizer_summary": [line for line in lines if "SUMMARY" in line],
        }
        if name == "soak":  # this part prints its findings as JSON
            found = [line for line in lines if line.startswith("{")]
            part["found"] = json.loads(found[-1]) if found else None
        with self._lock:
            self.parts[name] = part
            text = json.dumps({**self._facts, "parts": self.parts}, indent=2)
            (self.out / "gpu_suite.json").write_text(text + "\n")
        return bool(part["passed"])


def main() -> int:
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--wheel", type=Path, help="install this wheel instead of compiling")
    parser.add_argument("tests", nargs="*", help="further arguments for pytest")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    suite = Suite(out, arguments.wheel)

    shutil.rmtree(SITE, ignore_errors=True)
    # -P: the checkout's lltm_conda, which has no binaries, must not hide the installed package.
    python = [sys.executable, "-P"]
    install = [*python, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
    source = str(arguments.wheel.resolve()) if arguments.wheel else "."
    if suite.run("install", [*install, "--target", str(SITE), source], 600):
        suite.run("diagnosis", [*python, "-m", "lltm_conda"], 120)
        pytest = [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cuda"]
        once = ["--deselect", "tests/layer/test_layer_soak.py"]  # the soak runs last
        parts = [("tests", [*pytest, *SUITES, *once, *arguments.tests], dict[str, str]())]
        on_last = {**NO_CACHING, "CUDA_VISIBLE_DEVICES": str(suite.gpus - 1)}
        for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
            sanitizer = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND)]
            sanitizer += ["--show-backtrace", "device"]  # the host's takes seconds each
            command = [*sanitizer, *pytest, "tests/cuda/test_cuda_sanitizer_subset.py"]
            if tool == "initcheck":  # it misses the bulk stores of cuBLAS's kernels for 16 bits
                command += ["-k", "not planes and (not float16 or rows or tensor)"]
            parts.append((tool, command, on_last))
        with ThreadPoolExecutor(len(parts)) as pool:  # a single part leaves the GPU mostly idle
            list(pool.map(lambda part: suite.run(part[0], part[1], 540, **part[2]), parts))
        suite.run("soak", [*python, "tests/layer/layer_soak.py", "--calls", "10000"], 240)
    passed = sum(bool(part["passed"]) for part in suite.parts.values())
    print(f"{passed} passed, {len(suite.parts) - passed} failed")
    return 0 if passed == len(suite.parts) else 1


if __name__ == "__main__":
    sys.exit(main())
