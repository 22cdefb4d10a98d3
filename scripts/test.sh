#!/usr/bin/env bash
# Makes a test environment, checks the sources, installs the package, builds this machine's variant
# and the docs, and runs the tests. A second run reuses the environment and ninja's object files.
#
#   scripts/test.sh [--quick] [--torch VERSION] [PYTEST ARGUMENT ...]
#
#   --quick           installs and tests only: no linters, no scripts/build_all.sh host, no docs
#   --torch VERSION   like --quick with this torch, in an environment of its own
#
# All further arguments go to pytest: scripts/test.sh --quick -k guards; scripts/test.sh -m cuda.
# Without further arguments, pytest spreads the test files over up to four processes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. ./project.env
unset PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME
unset "${PROJECT_PREFIX}_LOAD" "${PROJECT_PREFIX}_PREBUILT"

quick=false torch=
while (($#)); do
  case $1 in
    --quick) quick=true ;;
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

step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

step "environment"
env=$(scripts/test_env.sh ${torch:+"$torch"})
echo "$env"
export PATH=$env/bin:$PATH

if ! $quick; then
  step "linters"
  scripts/lint.sh
fi

step "pip install . --no-build-isolation"
# build/lib* may hold modules that the sources no longer have; ninja reuses build/temp*.
rm -rf build/lib build/lib.*
python -m pip install --quiet --no-build-isolation --no-deps --force-reinstall .
(cd "$env" && python -m "$PROJECT_PACKAGE")

if ! $quick; then
  step "scripts/build_all.sh host"
  scripts/build_all.sh host
  # A project may lack scripts/docs.sh, which needs Python 3.11 or newer.
  if [[ -x scripts/docs.sh ]] && python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    step "scripts/docs.sh"
    PYTHON=$env/bin/python scripts/docs.sh
  fi
fi

if (($# == 0)); then
  cores=$(nproc)
  set -- -n "$((cores < 4 ? cores : 4))" --dist loadfile
fi
step "pytest $*"
status=0
pytest "$@" || status=$?
step "done"
exit "$status"
