#!/usr/bin/env bash
# Makes a test environment, checks the sources, builds everything that fits this machine, and runs
# the tests. A second run repeats only what has changed, and the tests.
#
#   scripts/test.sh [--quick] [--torch VERSION] [PYTEST ARGUMENT ...]
#
#   --quick           only the tests: no linters, no scripts/build_all.sh host
#   --torch VERSION   only the tests, with another torch, in an environment of its own
#
# All further arguments go to pytest: scripts/test.sh --quick -k guards; scripts/test.sh -m cuda.
# Without such arguments, pytest spreads the test files over up to four processes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
prefix=$(sed -n 's/^  prefix: *//p' build_matrix.yaml)
package=$(sed -n 's/^  package: *//p' build_matrix.yaml)
unset PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME "${prefix}_LOAD" "${prefix}_PREBUILT"

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
# Modules that an earlier build packed may be deleted now. ninja compiles only changed sources.
rm -rf build/lib build/lib.*
python -m pip install --quiet --no-build-isolation --no-deps --force-reinstall .
(cd "$env" && python -m "$package")

if ! $quick; then
  step "scripts/build_all.sh host"
  scripts/build_all.sh host
  # Not every project has a site. The site's tools need Python 3.11.
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
