#!/usr/bin/env bash
# Builds the site from docs/ into build/site. Any warning, also of a dead inner link, is an error.
#
#   scripts/docs.sh [--serve [PORT] | --browser]
#
#   --serve     builds the site, then serves it on http://localhost:8000 (or PORT)
#   --browser   installs the browser with which tests/test_site.py looks at the site; needs root
#
# The build needs Python 3.11 or newer (python3, or what PYTHON names) and a package index.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME

case ${1:-} in
  --browser)
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive exec apt-get install -qq --no-install-recommends chromium
    ;;
  "" | --serve) ;;
  *)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
    [[ $1 == --help || $1 == -h ]] && exit 0
    exit 2
    ;;
esac

env=$PWD/build/docs-env
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "$python is not a working Python 3.11 or newer; set PYTHON to one and run this again" >&2
  exit 2
fi
wanted=$({ "$python" --version; cat requirements/docs.txt; } | sha256sum)
if [[ $(cat "$env/.complete" 2>/dev/null) != "$wanted" ]]; then
  echo "making $env" >&2
  rm -rf "$env"
  if command -v uv >/dev/null; then # as in the tests' environment; it takes a tenth of pip's time
    # uv does not read pip's variables, so these lines set uv's own.
    [[ -z ${PIP_INDEX_URL:-} ]] || export UV_INDEX_URL=$PIP_INDEX_URL
    [[ -z ${PIP_EXTRA_INDEX_URL:-} ]] || export UV_EXTRA_INDEX_URL=$PIP_EXTRA_INDEX_URL
    [[ -z ${PIP_FIND_LINKS:-} ]] || export UV_FIND_LINKS=${PIP_FIND_LINKS// /,}
    "$python" -m venv --without-pip "$env"
    uv pip install --quiet --python "$env/bin/python" --require-hashes \
      -r requirements/docs.txt >&2
  else
    "$python" -m venv "$env"
    "$env/bin/python" -m pip install --quiet --require-hashes -r requirements/docs.txt >&2
  fi
  echo "$wanted" >"$env/.complete"
fi

# -m puts this folder on the path, where docs/conf.py finds docs._ext and torchship.
# A failed build leaves the old site, since the new one replaces it only at the end.
rm -rf build/site.new
"$env/bin/python" -m sphinx --quiet --fail-on-warning --keep-going -b html \
  -d build/site-cache docs build/site.new
rm -rf build/site
mv build/site.new build/site
echo "build/site/index.html"
if [[ ${1:-} == --serve ]]; then
  exec "$env/bin/python" -m http.server --bind localhost --directory build/site "${2:-8000}"
fi
