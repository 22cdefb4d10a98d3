#!/usr/bin/env bash
# Builds, audits, packs, installs and runs what build_matrix.yaml lists: `torchship release` of this
# checkout, in an environment of its own.
#
#   scripts/build_all.sh host      what fits this machine
#   scripts/build_all.sh --list    every cell of the matrix, and whether this machine can build it
#   scripts/build_all.sh --help
#
# Needs a Python >= 3.10 with venv (python3, or what PYTHON names) and a C++ compiler. Puts what
# it makes into build/ and dist/; only `generate` changes other files of the checkout.
set -euo pipefail
root=$(dirname "${BASH_SOURCE[0]}")/..
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
  echo "error: $python is not a working Python >= 3.10; install one, or set PYTHON to one" >&2
  exit 2
fi
export RELEASE_PROJECT="$root"
exec "$python" "$root/torchship/release/launch/run_module.py" torchship.release.start \
  torchship.release "$@"
