#!/usr/bin/env bash
# Builds, audits, packs, installs and runs what build_matrix.yaml lists.
#
#   scripts/build_all.sh host      what fits this machine
#   scripts/build_all.sh --list    every cell, and whether this machine can build it
#   scripts/build_all.sh --help
#
# Needs a Python >= 3.10 with venv (PYTHON names another than the one on PATH) and a
# C++ compiler. Everything is made below build/ and dist/.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
requirements="$root/scripts/release/requirements.txt"
python=${PYTHON:-}

if [ -z "$python" ]; then
  for candidate in python3 python3.13 python3.12 python3.11 python3.10 python; do
    if command -v "$candidate" >/dev/null &&
      "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      python=$candidate
      break
    fi
  done
fi
if [ -z "$python" ] || ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "error: no Python >= 3.10 (looked for ${PYTHON:-python3 on PATH}); install one, or set PYTHON" >&2
  exit 2
fi
# The interpreter itself, not a launcher whose choice depends on the folder.
python=$("$python" -c 'import sys; print(sys.executable)')

# The tool's own environment, made again when its requirements or the Python change.
tools="$root/build/tools"
stamp=$("$python" -c 'import hashlib, pathlib, sys
text = pathlib.Path(sys.argv[1]).read_text() + sys.version + sys.base_prefix
print(hashlib.sha256(text.encode()).hexdigest())' "$requirements")

# Every tool that runs holds the lock shared, so the environment is not replaced under it. The tool
# closes descriptor 9 for its commands.
lock() {
  flock --nonblock "$1" 9 && return
  echo "waiting for another build_all.sh in this checkout (build/tools.lock)" >&2
  flock "$1" 9
}
is_made() { [ "$(cat "$tools/.complete" 2>/dev/null || true)" = "$stamp" ]; }
mkdir -p "$root/build/logs"
exec 9>>"$root/build/tools.lock"
lock --shared
is_made || lock --exclusive
if ! is_made; then
  echo "making the release tool's environment (build/tools)" >&2
  rm -rf "$tools"
  log="$root/build/logs/tools.log"
  # uv reads no settings of pip; a password must not be in a command.
  if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_INDEX_URL="$PIP_INDEX_URL"; fi
  if ! { "$python" -m venv "$tools" &&
    "$tools/bin/python" -m pip install --quiet uv &&
    "$tools/bin/uv" pip install --quiet --python "$tools/bin/python" -r "$requirements"; } \
    >"$log" 2>&1; then
    tail -n 25 "$log" >&2
    echo "error: the tool's environment cannot be made (log: $log)." >&2
    echo "It needs the venv module (Debian: apt-get install python3-venv) and a package index" >&2
    echo "(PIP_INDEX_URL is honoured)." >&2
    exit 2
  fi
  echo "$stamp" >"$tools/.complete"
  lock --shared
fi

unset PYTHONDONTWRITEBYTECODE PYTHONHOME
export RELEASE_PYTHON="$python" PYTHONPATH="$root/scripts:$root" PYTHONUNBUFFERED=1
exec "$tools/bin/python" "$root/scripts/release_tool.py" release "$@"
