"""What torch fails at inside the op reaches the caller with torch's own reason."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from processes import Forks

from lltm_conda import loader

# In a process of its own, whose memory is then limited to what it has.
OUT_OF_MEMORY = """
import json, resource, torch, lltm_conda
batch = 16_000_000
inputs = [torch.ones(s) for s in ((batch, 1), (3, 2), (3,), (batch, 1), (batch, 1))]
lltm_conda.lltm(*(t[:2].clone() if t.shape[0] == batch else t for t in inputs))
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20), resource.RLIM_INFINITY))
try:
    lltm_conda.lltm(*inputs)
    text = "no error"
except RuntimeError as error:
    text = str(error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
small = [t[:2].clone() if t.shape[0] == batch else t for t in inputs]
again = bool(lltm_conda.lltm(*small)[0].isfinite().all())
print(json.dumps([text, again]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_out_of_memory_is_an_error_with_its_reason(tmp_path, forked_package: Forks) -> None:
    run = forked_package.run(OUT_OF_MEMORY, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    message, works_again = json.loads(run.stdout.splitlines()[-1])
    assert "memory" in message, message
    assert works_again
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if loader.load().glue.lane == "stable":
        assert message.startswith("lltm: torch's "), message
        if version >= (2, 13):
            assert "DefaultCPUAllocator" in message, message
