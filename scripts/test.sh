#!/usr/bin/env bash
# Makes a test environment, builds this machine's variant, with the linters and the docs beside it,
# installs the package, and runs the tests. A second run reuses the environment and ninja's object
# files.
#
#   scripts/test.sh [--quick] [--slow] [--torch VERSION] [PYTEST ARGUMENT ...]
#
#   --quick           installs and tests only: no linters, no scripts/build_all.sh host, no docs
#   --slow            runs the tests with the marker `slow` as well, as .ci/run does
#   --torch VERSION   like --quick with this torch, in an environment of its own
#
# All further arguments go to pytest: scripts/test.sh --quick -k guards; scripts/test.sh -m cuda.
# Without further arguments, pytest spreads the test files over up to four processes, one more than
# there are processors: some tests wait.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. ./project.env
unset PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME
unset "${PROJECT_PREFIX}_LOAD" "${PROJECT_PREFIX}_PREBUILT"

quick=false slow=false torch=
while (($#)); do
  case $1 in
    --quick) quick=true ;;
    --slow) slow=true ;;
    --torch)
      quick=true torch=${2:?--torch needs a version, for example 2.10.0}
      shift
      ;;
    --help | -h)
      sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
    *) break ;;
  esac
  shift
done

step() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }

names=() jobs=()
beside() { # starts NAME, which is COMMAND ..., beside the build, which goes first
  names+=("$1")
  shift
  nice "$@" >"$logs/${#names[@]}" 2>&1 &
  jobs+=($!)
}
finish_those_beside() { # waits for them, and prints what they said; ends with the first failure
  local number status
  for number in "${!names[@]}"; do
    step "${names[number]}"
    status=0
    wait "${jobs[number]}" || status=$?
    unset "jobs[number]" # another process may get the number of the ended one
    cat "$logs/$((number + 1))"
    ((status == 0)) || exit "$status"
  done
}

step "environment"
env=$(scripts/test_env.sh ${torch:+"$torch"})
echo "$env"
export PATH=$env/bin:$PATH

if ! $quick; then
  logs=$(mktemp -d)
  trap 'kill "${jobs[@]}" 2>/dev/null || true; rm -rf "$logs"' EXIT
  beside "scripts/lint.sh" scripts/lint.sh
  # A project may lack scripts/docs.sh, which needs Python 3.11 or newer.
  if [[ -x scripts/docs.sh ]] && python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    beside "scripts/docs.sh" env PYTHON="$env/bin/python" scripts/docs.sh
  fi
  step "scripts/build_all.sh host"
  scripts/build_all.sh host
  finish_those_beside

  # The package that is tested takes the binaries of that build, which are in its wheel.
  rm -rf build/host-wheel
  python -c '
import json
from pathlib import Path
from zipfile import ZipFile

artefacts = json.loads(Path("dist/manifest.json").read_text(encoding="utf-8"))["artefacts"]
(wheel,) = (artefact["path"] for artefact in artefacts if artefact["kind"] == "fat")
ZipFile(f"dist/{wheel}").extractall("build/host-wheel")
'
  export "${PROJECT_PREFIX}_PREBUILT=$PWD/build/host-wheel/$PROJECT_PACKAGE/lib"
fi

step "pip install . --no-build-isolation"
# build/lib* may hold modules that the sources no longer have; ninja reuses build/temp*.
rm -rf build/lib build/lib.*
python -m pip install --quiet --no-build-isolation --no-deps --force-reinstall .
unset "${PROJECT_PREFIX}_PREBUILT"
(cd "$env" && python -m "$PROJECT_PACKAGE")

if (($# == 0)); then
  cores=$(nproc)
  # xdist by itself keeps files of few tests, which are the long ones here, for the end. After a
  # crash of a test process it would replace the process, and then wait without end for the tests
  # that the process still had; without a replacement it stops, and names the test.
  set -- -n "$((cores < 4 ? cores + 1 : 4))" --dist loadfile --no-loadscope-reorder \
    --max-worker-restart 0
fi
if $slow; then
  set -- -m "not cuda and not network and not rehearsal" "$@"
fi
step "pytest $*"
status=0
pytest "$@" || status=$?
step "done"
exit "$status"
