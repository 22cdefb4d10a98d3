#!/bin/bash
# Installs from a wheel in a folder rather than from the source tree: pip then
# leaves no direct_url.json with the path of this build in the package.
set -euo pipefail
[ -n "${LLTM_CONDA_PREBUILT:-}" ] || unset LLTM_CONDA_PREBUILT
wheels=$(mktemp -d)
"$PYTHON" -m pip wheel . --no-deps --no-build-isolation --no-index -w "$wheels" -v
"$PYTHON" -m pip install lltm --no-deps --no-index --find-links "$wheels" -v
