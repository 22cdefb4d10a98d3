"""The test inside a package passes only where the package's own variant is chosen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rattler_build")


@pytest.fixture(scope="module")
def scripts(make_channels, tmp_path_factory) -> dict[str, list[str]]:
    """The commands of each package's own test, by build string."""
    import rattler.package_streaming

    folder = tmp_path_factory.mktemp("scripts")
    make_channels(folder / "matrix")
    found = {}
    for path in (folder / "matrix" / "channel").rglob("*.conda"):
        out = folder / path.stem
        rattler.package_streaming.extract(path, out)
        build = json.loads((out / "info" / "index.json").read_text())["build"]
        text = (out / "info" / "tests" / "tests.yaml").read_text(encoding="utf-8")
        found[build] = commands(text)
    return found


def commands(text: str) -> list[str]:
    from ruamel.yaml import YAML

    tests = YAML(typ="safe").load(text)
    (script,) = [test["script"] for test in tests if "script" in test]
    content = script["content"] if isinstance(script, dict) else script
    return [content] if isinstance(content, str) else list(content)


def run(lines: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLTM_")}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    wanted = [line for text in lines for line in text.splitlines() if "pip check" not in line]
    command = ["bash", "-ec", "\n".join(wanted)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def test_every_package_asks_for_its_own_variant(scripts) -> None:
    assert len(scripts) >= 15
    for build, lines in scripts.items():
        device, glue = build.rsplit("_", 1)[0].split("_", 1)
        variant = glue.replace("_", "-") + ("-cu" + device[4:6] if device != "cpu" else "-cpu")
        assert f'"chosen": "{variant}"' in "\n".join(lines).replace("\\", "")
        assert f"--explain {variant}" in "\n".join(lines)


def test_it_passes_where_that_variant_is_chosen(scripts, tmp_path) -> None:
    done = run(scripts["cpu_stable210_100"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_fails_where_the_cuda_kernels_are_refused(scripts, tmp_path) -> None:
    """Here torch is a CPU build, so no CUDA kernels can be taken; the CPU's still compute."""
    assert run(["python -m lltm_conda"], tmp_path).returncode == 0
    done = run(scripts["cuda130_stable210_300"], tmp_path)
    assert done.returncode != 0 and "kernels-cuda13.so" in done.stdout


def test_the_last_line_alone_tells_another_variant(scripts, tmp_path) -> None:
    lines = [x for text in scripts["cuda130_stable210_300"] for x in text.splitlines()]
    (chosen,) = [line for line in lines if "chosen" in line]
    assert run([chosen], tmp_path).returncode == 1
