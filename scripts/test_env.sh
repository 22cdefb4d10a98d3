#!/usr/bin/env bash
# Makes the environment for tests and linters, and prints its folder as the last line.
#
#   scripts/test_env.sh [TORCH_VERSION]
#   scripts/test_env.sh --cross    only installs qemu and the cross compiler for Arm; needs root
#
# Without a version, build/test-env gets the default torch of project.env. With a version, the
# folder is build/test-env-TORCH_VERSION. The script keeps an environment that is up to date. PYTHON
# names the interpreter (default: python3); UV_TORCH_BACKEND=cpu makes uv install a CPU build of
# torch from PyTorch's own index.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME VIRTUAL_ENV

if [[ ${1:-} == --cross ]]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive exec apt-get install -qq --no-install-recommends \
    g++-aarch64-linux-gnu qemu-user
fi

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
  echo "$python is not a working Python 3.10 or newer; set PYTHON to one and run this again" >&2
  exit 1
fi

# Take the base interpreter, since this script may delete the environment of $python.
python=$("$python" -c 'import sys; print(sys._base_executable)')

. ./project.env
torch=${1:-$PROJECT_DEFAULT_TORCH}
env=$PWD/build/test-env${1:+-$1}
wanted=$({ "$python" --version; echo "$env torch==$torch"; cat requirements/dev.txt; } | sha256sum)

if [[ ! -x $env/bin/python || $(cat "$env/.complete" 2>/dev/null) != "$wanted" ]]; then
  # uv does not read pip's variables, so these lines set uv's own.
  [[ -z ${PIP_INDEX_URL:-} ]] || export UV_INDEX_URL=$PIP_INDEX_URL
  [[ -z ${PIP_EXTRA_INDEX_URL:-} ]] || export UV_EXTRA_INDEX_URL=$PIP_EXTRA_INDEX_URL
  [[ -z ${PIP_FIND_LINKS:-} ]] || export UV_FIND_LINKS=${PIP_FIND_LINKS// /,}

  echo "making $env: $("$python" --version), torch $torch, tools of requirements/dev.txt" >&2
  rm -rf "$env"
  mkdir -p build
  "$python" -m venv "$env" >&2
  # All files must have locked hashes, except for torch (an argument) and its dependencies.
  "$env/bin/python" -m pip install --quiet --require-hashes \
    -r <(sed -n '/^uv==/,/[^\\]$/p' requirements/dev.txt) >&2
  install=("$env/bin/uv" pip install --quiet --python "$env/bin/python")
  "${install[@]}" --require-hashes -r requirements/dev.txt >&2
  "${install[@]}" "torch==$torch" >&2
  echo "$wanted" >"$env/.complete"
fi
echo "$env"
