#!/usr/bin/env bash
# Tries a release of torch that build_matrix.yaml does not know: measures it, writes it into every
# table of a clone, builds there, runs the tests of the op, and shows what differs.
#
#   scripts/new_torch.sh 2.16.0
#   scripts/new_torch.sh 2.17.0.dev20270101+cpu --index https://download.pytorch.org/whl/nightly/cpu
#   scripts/new_torch.sh 2.15.0 --take-out     as if nobody knew it yet, to try the script itself
#
# The patch of the tables and the report are in build/new_torch/VERSION. PYTHON names the
# interpreter (default: python3), which this torch must have a wheel for. The environment is
# build/test-env-VERSION.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
  exit 0
fi
version=${1:?needs a version of torch, such as 2.16.0}
shift
index=
for ((number = 1; number < $#; number++)); do
  following=$((number + 1))
  [[ ${!number} != --index ]] || index=${!following}
done
[[ -z $index ]] || export PIP_EXTRA_INDEX_URL=$index

env=$(scripts/test_env.sh "$version")
export PATH=$env/bin:$PATH
exec python -m measurements.new_torch "$version" --seconds "$SECONDS" "$@"
