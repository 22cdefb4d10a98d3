"""How much `import lltm_conda` adds to `import torch`.

    python scripts/import_time.py [--runs 21] [--json]

Each run is a fresh process. "first" is the import that judges (its choice is not remembered yet),
"ordinary" every later one. Run it where lltm is installed, on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

_CHILD = """
import json, time
start = time.perf_counter()
import torch
middle = time.perf_counter()
import lltm_conda
end = time.perf_counter()
print(json.dumps([middle - start, end - middle, lltm_conda.loader.loaded().remembered,
                  torch.cuda.is_initialized(), torch.__version__]))
"""


def run(cache: str) -> list[object]:
    """One process; its seconds for torch and for lltm_conda."""
    environment = {key: value for key, value in os.environ.items() if key != "LLTM_CONDA_LOAD"}
    environment |= {"LLTM_CONDA_CACHE": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CHILD], env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"lltm_conda cannot be imported here:\n{done.stderr}")
    result: list[object] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    first, ordinary, torch_times = [], [], []
    version: object = ""
    run(tempfile.mkdtemp())  # compiles the bytecode, fills the file cache
    with tempfile.TemporaryDirectory() as warm:
        run(warm)
        for _ in range(options.runs):
            with tempfile.TemporaryDirectory() as cold:
                first.append(run(cold))
            ordinary.append(run(warm))
    if any(result[2] for result in first) or not all(result[2] for result in ordinary):
        raise SystemExit("the choice was not remembered as expected; is the cache folder private?")
    if any(result[3] for result in first + ordinary):
        raise SystemExit("the import initialised CUDA")
    version = ordinary[0][4]
    torch_times = [float(str(result[0])) for result in first + ordinary]
    report = {
        "torch": version,
        "runs": options.runs,
        "import_torch_ms": round(1000 * statistics.median(torch_times), 1),
        "ordinary_ms": round(1000 * statistics.median(float(str(r[1])) for r in ordinary), 2),
        "first_ms": round(1000 * statistics.median(float(str(r[1])) for r in first), 2),
    }
    if options.json:
        print(json.dumps(report))
    else:
        print(f"import torch {version}: {report['import_torch_ms']} ms (median)")
        print(f"import lltm_conda adds {report['ordinary_ms']} ms, {report['first_ms']} ms first")
    return 0


if __name__ == "__main__":
    sys.exit(main())
