#!/usr/bin/env bash
# Measures the sensible set on a GPU machine in about six minutes and stores it as JSON.
#
#   benchmarks/run_all.sh DIRECTORY [cuda|cpu]
#
# Each part goes on when another fails; the exit status is that of the worst part. Parts have
# deadlines of their own, so the whole keeps to its time; what they cut off is named in the files.
set -uo pipefail

out=${1:?"usage: benchmarks/run_all.sh DIRECTORY [cuda|cpu]: needs the directory to write into"}
device=${2:-cuda}
python=${PYTHON:-python3}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.." || exit 2
unset PYTHONDONTWRITEBYTECODE # it triples the time of `import torch`

worst=0
part() { # NAME COMMAND...: one benchmark into NAME.json, its tables into NAME.txt
  local name=$1 began=$SECONDS status
  shift
  "$python" -m benchmarks "$@" --json "$out/$name.json" >"$out/$name.txt" 2>&1
  status=$?
  echo "$name: $((SECONDS - began)) s, exit $status"
  ((status > worst)) && worst=$status
}

if [ "$device" = cuda ]; then
  part cell-cuda-tutorial cell --device cuda --seconds 0.5 --deadline 90
  part cell-cuda-graph cell --device cuda --protocol graph --seconds 0.2 --deadline 40
  part cell-cuda-kernels cell --device cuda --protocol kernels --dtype float32 bfloat16 \
    --contenders python cpp cuda lstmcell ours
  part cell-cuda-dtypes cell --device cuda --protocol split --seconds 0.2 --deadline 30 \
    --dtype float32 bfloat16 float16 --contenders python cpp lstmcell ours \
    --sizes 256,1024,2048 4096,1024,4096
  part cell-cuda-memory cell --device cuda --protocol memory --sizes 16,32,128 64,512,1024 \
    --contenders python cpp cuda lstmcell ours
  part grid-cuda grid --device cuda --seconds 0.15 --rounds 7 --deadline 60 \
    --contenders python cpp cuda lstmcell ours ours-again
  part grid-cuda-compile grid --device cuda --seconds 0.15 --rounds 7 --deadline 90 \
    --contenders compile compile-reduce-overhead ours
  part layer-cuda layer --device cuda --dtype float32 bfloat16 --seconds 0.3 --rounds 5 \
    --contenders lstm gru cuda-loop ours-loop ours ours-again --deadline 45
fi
part cell-cpu cell --threads 1 --seconds 0.5 --contenders python cpp lstmcell ours ours-again
part import import --rounds 7
part judge judge --rounds 10

echo
"$python" -m benchmarks targets "$out"/*.json
exit "$worst"
