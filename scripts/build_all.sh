#!/usr/bin/env bash
# Builds, audits, packs, installs and runs what build_matrix.yaml lists.
#
#   scripts/build_all.sh host      what fits this machine
#   scripts/build_all.sh --list    every cell of the matrix, and whether this machine can build it
#   scripts/build_all.sh --help
#
# Needs a Python >= 3.10 with venv (python3, or what PYTHON names) and a C++ compiler. Puts what
# it makes into build/ and dist/; only --write-generated changes other files of the checkout.
set -euo pipefail

fail() {
  printf 'error: %s\n' "$@" >&2
  exit 2
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd && echo .)
root=${root%$'\n'.}
[[ $root != *[:$'\n\r']* ]] ||
  fail "the folder of this checkout has a colon or a line break in its name, which PYTHONPATH or ninja cannot hold: $(printf %q "$root"); rename or move it"
requirements="$root/requirements/release.txt"
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
  fail "$python is not a working Python >= 3.10; install one, or set PYTHON to one"
# A launcher such as pyenv's may start another Python in another folder: use the one it starts here.
python=$("$python" -c 'import sys; print(sys.executable)')

# The tool's own environment is made again when its requirements or the Python change.
tools="$root/build/tools"
stamp=$("$python" -c 'import hashlib, pathlib, sys
text = pathlib.Path(sys.argv[1]).read_text() + sys.version + sys.base_prefix
print(hashlib.sha256(text.encode()).hexdigest())' "$requirements")

# Every running tool holds a shared lock, so that no other run replaces the tool's environment. The
# tool does not pass the lock's descriptor, 9, on to its commands.
lock() {
  flock --nonblock "$1" 9 && return
  echo "waiting for another build_all.sh in this checkout (build/tools.lock)" >&2
  flock "$1" 9
}
# Prints the lines of a requirements file that pin uv itself.
uv_of() { sed -n '/^uv==/,/[^\\]$/p' "$1"; }
is_made() { [ "$(cat "$tools/.complete" 2>/dev/null || true)" = "$stamp" ]; }
{ mkdir -p "$root/build/logs" "$root/dist" && exec 9>>"$root/build/tools.lock"; } ||
  fail "build/ and dist/ of $root cannot be written; make them writable, or clone it elsewhere"
lock --shared
is_made || lock --exclusive
if ! is_made; then
  echo "making the release tool's environment (build/tools)" >&2
  rm -rf "$tools"
  log="$root/build/logs/tools.log"
  # uv reads its own variable, not pip's. An option would show the URL's password to all users.
  if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_INDEX_URL="$PIP_INDEX_URL"; fi
  # pip and uv install a file only if it has the hash that the requirements file names.
  if ! { "$python" -m venv "$tools" &&
    "$tools/bin/python" -m pip install --quiet --require-hashes -r <(uv_of "$requirements") &&
    "$tools/bin/uv" pip install --quiet --python "$tools/bin/python" --require-hashes \
      -r "$requirements"; } 2>&1 |
    sed -E 's#(://)[^ /]+@#\1***@#g' >"$log"; then
    tail -n 25 "$log" >&2
    fail "the tool's environment cannot be made (log: $log).
It needs the venv module (Debian: apt-get install python3-venv) and a package index, which
PIP_INDEX_URL may name."
  fi
  echo "$stamp" >"$tools/.complete"
fi
lock --shared

unset PYTHONDONTWRITEBYTECODE PYTHONHOME
export RELEASE_PYTHON="$python" PYTHONPATH="$root" PYTHONUNBUFFERED=1
exec "$tools/bin/python" "$root/scripts/release_tool.py" torchship.release "$@"
