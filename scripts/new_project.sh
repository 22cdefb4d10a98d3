#!/usr/bin/env bash
# Makes a repository for your own op, with a copy of the engine and an example as its first op.
#
#   scripts/new_project.sh NAME DIR [--template rms_norm|aten]
#   scripts/new_project.sh --update DIR       copies this checkout's engine into the repository DIR
#
# The template rms_norm is a fused RMSNorm with kernels for the CPU and CUDA; aten has no kernels.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ ${1:-} == "" || ${1:-} == --help || ${1:-} == -h ]]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
  exit 0
fi
"$root/scripts/build_all.sh" --help >/dev/null # makes the tool's environment
unset PYTHONHOME
export PYTHONPATH=$root
exec "$root/build/tools/bin/python" "$root/scripts/new_project.py" "$@"
