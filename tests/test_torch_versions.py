"""The op's tests passed with each torch of the page on torch versions, as the stored runs say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "measurements" / "results" / "torches"
NEWEST_PYTHONS = ("3.13t", "3.14", "3.14t", "3.15")
ON_NEWEST = ("tests/op ", "tests/layer", "tests/compat/test_compat_loader.py")


def stored() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def test_nothing_failed_with_any_torch_through_either_door_on_any_python() -> None:
    assert [(r["torch"], r["failures"]) for r in stored() if r["failed"]] == []
    tried = {".".join(r["torch"].split(".")[:2]): r["variant"] for r in stored()}
    doors = {minor: tried[minor].rpartition("-")[0] for minor in ("2.4", "2.9", "2.10", "2.15")}
    assert doors == {
        "2.4": "aten24-abi0",
        "2.9": "aten29-abi1",
        "2.10": "stable210",
        "2.15": "stable210",
    }
    for python in NEWEST_PYTHONS:
        version = re.compile(rf"{python.rstrip('t')}\.\d+{'t' * python.endswith('t')}")
        commands = [r["command"] for r in stored() if version.fullmatch(r["python"])]
        for part in ON_NEWEST:
            assert any(part in command for command in commands), (python, part)
