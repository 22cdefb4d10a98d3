#!/usr/bin/env bash
# Makes the environment for tests and linters, and prints its folder as the last line.
#
#   scripts/test_env.sh [TORCH_VERSION]
#   scripts/test_env.sh --cross    only installs the cross compiler for Arm and qemu; needs root
#
# Without a version: the torch that build_matrix.yaml tests with by default, in build/test-env.
# With one: build/test-env-TORCH_VERSION. An up-to-date environment is kept. PYTHON names the
# interpreter to use (python3); UV_TORCH_BACKEND=cpu takes PyTorch's own CPU builds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME VIRTUAL_ENV

if [[ ${1:-} == --cross ]]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive exec apt-get install -qq --no-install-recommends \
    g++-aarch64-linux-gnu qemu-user
fi

default_torch() {
  awk '{ gsub(/["]/, "") }
       $1 == "default_torch:" { wanted = $2 ":" }
       /^[a-z]/ { section = $1 }
       section == "torch:" && $1 == wanted { found = 1 }
       found && $1 == "release:" { print $2; exit }' build_matrix.yaml
}

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
  echo "$python is not a working Python 3.10 or newer; set PYTHON to one and run this again" >&2
  exit 1
fi

# The base interpreter: that of an environment may be deleted below.
python=$("$python" -c 'import sys; print(sys._base_executable)')

torch=${1:-$(default_torch)}
env=$PWD/build/test-env${1:+-$1}
wanted=$({ "$python" --version; echo "$env torch==$torch"; cat requirements/dev.txt; } | sha256sum)

if [[ ! -x $env/bin/python || $(cat "$env/.complete" 2>/dev/null) != "$wanted" ]]; then
  # uv does not read pip's settings.
  sources=()
  [[ -n ${PIP_INDEX_URL:-} ]] && sources+=(--index-url "$PIP_INDEX_URL")
  for url in ${PIP_EXTRA_INDEX_URL:-}; do sources+=(--extra-index-url "$url"); done
  for place in ${PIP_FIND_LINKS:-}; do sources+=(--find-links "$place"); done

  echo "making $env: $("$python" --version), torch $torch, tools of requirements/dev.txt" >&2
  rm -rf "$env"
  mkdir -p build
  "$python" -m venv "$env" >&2
  # Every file must have the hash that is locked; torch's version is an argument, so it has none.
  "$env/bin/python" -m pip install --quiet --require-hashes \
    -r <(sed -n '/^uv==/,/[^\\]$/p' requirements/dev.txt) >&2
  install=("$env/bin/uv" pip install --quiet --python "$env/bin/python" ${sources[@]+"${sources[@]}"})
  "${install[@]}" --require-hashes -r requirements/dev.txt >&2
  "${install[@]}" "torch==$torch" >&2
  echo "$wanted" >"$env/.complete"
fi
echo "$env"
