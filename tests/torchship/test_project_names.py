"""`torchship new` refuses the names that cannot work, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from new_projects import torchship
from processes import Forks

from torchship.project.names import why_not


@pytest.mark.parametrize("name", ["my-op", "rms-norm", "fast_attention", "op2", "ab"])
def test_a_name_that_nobody_has_is_accepted(name: str) -> None:
    assert why_not(name) == ""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("build", "folder"),
        ("dist", "folder"),
        ("recipe", "folder"),
        ("vendor", "folder"),
        ("backend", "module of the new repository's build"),
        ("template", "C++"),
        ("namespace", "C++"),
        ("not-eq", "C++"),
        ("lambda", "Python"),
        ("json", "Python's library"),
        ("aten", "PyTorch's own"),
        ("prim", "PyTorch's own"),
        ("torchvision", "beside torch"),
        ("lltm", "beside torch"),
        ("lltm-conda", "beside torch"),
        ("torchship", "torchship itself"),
        ("torch-doctor", "torchship itself"),
        ("numpy", "torch or a build needs"),
        ("pytest", "the tools need"),
        ("help", "CMake"),
        ("a", "two letters"),
        ("Upper", "lower-case words"),
        ("../up", "lower-case words"),
        ("", "lower-case words"),
    ],
)
def test_a_name_that_cannot_work_is_refused_with_the_reason(name: str, reason: str) -> None:
    assert reason in why_not(name)


def test_no_namespace_of_the_installed_torch_is_accepted(forked: Forks, tmp_path: Path) -> None:
    # In a process of its own: tests of this one may have registered others.
    code = (
        "import torch; names = torch._C._dispatch_get_all_op_names();"
        "print(*{name.partition('::')[0] for name in names})"
    )
    listing = forked.run(code, cwd=tmp_path)
    own = {name for name in listing.stdout.split() if hasattr(torch.ops, name)}
    assert {"aten", "c10d", "quantized"} <= own
    assert [name for name in sorted(own) if not why_not(name)] == []


def test_a_refused_name_leaves_nothing(tmp_path: Path) -> None:
    result = torchship("new", "build", tmp_path / "repo", cwd=tmp_path)
    assert result.returncode == 2
    assert "NAME is 'build', which is a folder" in result.stderr
    assert list(tmp_path.iterdir()) == []
