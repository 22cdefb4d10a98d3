#!/usr/bin/env bash
# cibuildwheel runs this script in its container, as [tool.cibuildwheel] in pyproject.toml says:
#
#   scripts/cibuildwheel.sh before-all [SELECTOR ...]   compile and audit; fill the PREBUILT folder
#   scripts/cibuildwheel.sh before-build                delete what earlier builds left
#   scripts/cibuildwheel.sh repair WHEEL DEST_DIR       give the wheel its platform tag and final name
#   scripts/cibuildwheel.sh test                        run the installed wheel in this environment
#
# The steps work outside a container, too. The platform tag says which glibc the binaries need.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd && echo .)
root=${root%$'\n'.}
if [[ $root == *[:$'\n\r']* ]]; then
  printf 'error: the folder of this checkout has a colon or a line break in its name, which PYTHONPATH or ninja cannot hold: %q; rename or move it\n' "$root" >&2
  exit 2
fi

. "$root/project.env"

case ${1:-} in
  before-all)
    # git refuses a checkout that another user owns, unless safe.directory names it.
    git config --global --get-all safe.directory | grep -qxF "$root" ||
      git config --global --add safe.directory "$root"
    ;;
  before-build)
    rm -rf "$root"/build/{lib,bdist.,temp.}* "$root/$PROJECT_PACKAGE/lib"
    exit
    ;;
  repair) ;;
  test)
    cd /
    python -m "$PROJECT_PACKAGE"
    exec python "$root/scripts/engine_smoke.py" --outside "$root/$PROJECT_PACKAGE"
    ;;
  *)
    echo "usage: scripts/cibuildwheel.sh before-all|before-build|repair|test, got: $*" >&2
    exit 2
    ;;
esac

export RELEASE_PROJECT="$root"
exec "${PYTHON:-python3}" "$root/torchship/release/launch/run_module.py" torchship.release.start \
  torchship.release.matrix.cibuildwheel "$@"
