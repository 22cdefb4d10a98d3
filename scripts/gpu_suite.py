"""Runs everything that needs a GPU and writes the results as data.

    python3 scripts/gpu_suite.py --out benchmarks/results/gpu

needs an NVIDIA GPU, a CUDA build of torch, nvcc, pytest and hypothesis in the running Python; and
compute-sanitizer, which comes with CUDA. It installs lltm into build/gpu-site, runs the tests
marked `cuda` and beside them the subset meant for it under memcheck, racecheck, initcheck and
synccheck, then calls layers 10,000 times on two streams at once, and writes `gpu_suite.json`
(machine, versions, commit, command, outcome of each part) and the logs. With `--wheel FILE` it
installs that wheel instead of compiling. The exit code is 0 only if every part passed.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "gpu-site"
SUITES = ("tests/op", "tests/cuda", "tests/layer", "tests/compat/test_compat_gpu.py")
SOAK_CALLS = 10_000
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
# Every tensor is an allocation of its own, so that an access past its end is seen.
NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def capture(command: list[str]) -> str:
    """The command's output, or why there is none."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({error})"
    return run.stdout.strip()


def machine() -> dict[str, object]:
    """What the results were measured on."""
    facts = "import json, torch; p = torch.cuda.get_device_properties(0); print(json.dumps(dict("
    facts += "torch=torch.__version__, cuda=torch.version.cuda, gpu=p.name, gpus="
    facts += "torch.cuda.device_count(), compute_capability=f'{p.major}.{p.minor}')))"
    found: dict[str, object] = json.loads(capture([sys.executable, "-c", facts]))
    found["driver"] = capture(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"]
    )
    found["nvcc"] = capture(["nvcc", "--version"]).splitlines()[-1]
    found["python"] = platform.python_version()
    return found


def commit() -> str:
    """The commit under test; LLTM_GIT_COMMIT where the checkout has no .git."""
    named = os.environ.get("LLTM_GIT_COMMIT")
    return named or capture(["git", "-C", str(ROOT), "rev-parse", "HEAD"])


def modified() -> list[str] | None:
    """Tracked files that differ from the commit, which a result to be kept should not have.

    None where the checkout has no .git to ask.
    """
    changed = capture(["git", "-C", str(ROOT), "diff", "--name-only", "HEAD"])
    return None if changed.startswith("unknown") else changed.splitlines()


def shown(command: list[str], out: Path) -> str:
    """The command as anybody would type it, without this machine's folders."""
    text = shlex.join(command)
    for path, name in ((sys.executable, "python3"), (str(out), "OUT"), (str(ROOT), ".")):
        text = re.sub(re.escape(path) + r"(?![\w-])", name, text)
    return re.sub(r"\S+/(?=[^/\s]+\.whl)", "", text)  # where a wheel lay is nobody's business


def part(
    name: str,
    command: list[str],
    out: Path,
    timeout: float,
    cwd: Path = ROOT,
    variables: dict[str, str] | None = None,
) -> dict[str, object]:
    """Runs one command with its log beside the results."""
    print(f"== {name}: {shlex.join(command)}", flush=True)
    env = {
        **os.environ,
        **(variables or {}),
        "PYTHONPATH": os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")]),
    }
    log = out / f"{name}.log"
    start = time.monotonic()
    with log.open("w") as file:
        try:
            code = subprocess.run(
                command, cwd=cwd, env=env, stdout=file, stderr=subprocess.STDOUT, timeout=timeout
            ).returncode
        except subprocess.TimeoutExpired:
            code = 124
    lines = log.read_text(errors="replace").splitlines()
    summary = next(
        (
            line.strip("= ")
            for line in reversed(lines)
            if re.search(r"\d+ passed|\d+ failed|ERROR SUMMARY|RACECHECK SUMMARY", line)
        ),
        lines[-1] if lines else "",
    )
    errors = [line for line in lines if "SUMMARY" in line]
    print("\n".join([*lines[-12:], f"-- {name}: exit code {code}"]), flush=True)
    return {
        "command": shown(command, out),
        "exit_code": code,
        "seconds": round(time.monotonic() - start, 1),
        "summary": summary,
        "sanitizer_summary": errors,
    }


def found(log: Path) -> dict[str, object] | None:
    """What a program of its own printed as JSON, or None where it did not come to that."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--no-sanitizer", action="store_true", help="leave compute-sanitizer out")
    parser.add_argument("--wheel", type=Path, help="install this wheel instead of compiling")
    parser.add_argument("tests", nargs="*", help="further arguments for pytest")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)

    shutil.rmtree(SITE, ignore_errors=True)
    parts: dict[str, dict[str, object]] = {}
    result = {
        "schema": 1,
        "command": shown(["python3", *sys.argv], arguments.out),
        "commit": commit(),
        "wheel": arguments.wheel.name if arguments.wheel else None,
        "modified": modified(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
    }

    storing = Lock()

    def store() -> None:
        """After every part: whoever is cut off keeps what was found."""
        with storing:
            result["parts"] = dict(parts)
            (out / "gpu_suite.json").write_text(json.dumps(result, indent=2) + "\n")

    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
    source = str(arguments.wheel.resolve()) if arguments.wheel else "."
    parts["install"] = part("install", [*install, "--target", str(SITE), source], out, 600)
    store()
    # -P: the checkout's lltm_conda, which has no binaries, must not shadow the installed one.
    pytest = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cuda"]
    if parts["install"]["exit_code"] == 0:
        parts["diagnosis"] = part(
            "diagnosis", [sys.executable, "-m", "lltm_conda"], out, 120, cwd=out
        )
        once = ["--deselect", "tests/layer/test_layer_soak.py"]  # the part below
        subset = "tests/cuda/test_cuda_sanitizer_subset.py"
        tools = () if arguments.no_sanitizer else SANITIZERS

        def tested(tool: str | None) -> None:
            if tool is None:
                command = [*pytest, *SUITES, *once, *arguments.tests]
                parts["tests"] = part("tests", command, out, 420)
            else:
                sanitizer = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
                command = [*sanitizer, *pytest, subset]
                parts[tool] = part(tool, command, out, 420, variables=NO_CACHING)
            store()

        with ThreadPoolExecutor(1 + len(SANITIZERS)) as pool:  # each leaves the GPU idle mostly
            list(pool.map(tested, (None, *tools)))
        soak = [sys.executable, "-P", "tests/layer/layer_soak.py", "--calls", str(SOAK_CALLS)]
        parts["soak"] = part("soak", soak, out, 240)
        parts["soak"]["found"] = found(out / "soak.log")
    store()
    passed = sum(entry["exit_code"] == 0 for entry in parts.values())
    print(f"{passed} passed, {len(parts) - passed} failed")
    return 0 if passed == len(parts) else 1


if __name__ == "__main__":
    sys.exit(main())
