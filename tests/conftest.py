"""What holds for every test folder."""

from __future__ import annotations

import os

import pytest
import torch

# Before any test folder puts the repository on sys.path, where the sources would shadow the
# installed package.
try:
    import lltm_conda  # noqa: F401
except ModuleNotFoundError as error:
    raise pytest.UsageError(
        f"{error}: the tests run against the installed package. Run scripts/test.sh, or: "
        "python -m pip install . --no-build-isolation"
    ) from error

# Processes side by side share the processors.
_processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
torch.set_num_threads(max(1, torch.get_num_threads() // _processes))
