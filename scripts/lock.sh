#!/usr/bin/env bash
# Locks the requirements of tests, release tool, workflows and site, with a hash for every file.
#
#   scripts/lock.sh [--upgrade]   keeps locked versions; --upgrade renews those of tests and site
#
# Needs uv on PATH. The release tool and the workflows get the tests' versions of shared packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lock() {
  uv pip compile --quiet --universal --python-version "${python:-3.10}" --generate-hashes --no-annotate \
    --custom-compile-command "scripts/lock.sh" "$@"
}
lock "$@" requirements/dev.in -o requirements/dev.txt
for name in release cibuildwheel sbom; do
  own=torchship/release/requirements/$name
  lock -c requirements/dev.txt "$own.in" -o "$own.txt"
done
lock -c requirements/dev.txt torchship/project/requirements.in -o torchship/project/requirements.txt
# The libraries are installed beside the torch of the tests, so the lock has no torch.
lock -c requirements/dev.txt --override <(echo 'torch; python_version < "3"') \
  requirements/libraries.in -o requirements/libraries.txt
python=3.11 lock "$@" requirements/docs.in -o requirements/docs.txt
