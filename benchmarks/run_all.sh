#!/usr/bin/env bash
# Measures what the targets of one device need, in about 15 minutes for cuda, and stores JSON.
#
#   benchmarks/run_all.sh DIRECTORY [cuda|cpu] [PART...]
#
# Without names all parts run, the most important ones first. A part that fails does not stop the
# others; the exit status is the highest of all. A file names the sizes that a deadline cut off, and
# is written after each size (`import` at its end). $PYTHON names the interpreter.
set -uo pipefail

out=${1:?"usage: benchmarks/run_all.sh DIRECTORY [cuda|cpu] [PART...]: name the directory for results"}
device=${2:-cuda}
only=" ${*:3} "
python=${PYTHON:-python3}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
unset PYTHONDONTWRITEBYTECODE # with it, `import torch` takes three times as long

worst=0 ran=0
part() { # NAME COMMAND...: runs the command; writes results to NAME.json, tables to NAME.txt
  local name=$1 began=$SECONDS status
  shift
  [[ $only =~ ^\ +$ || $only == *" $name "* ]] || return 0
  "$python" -m benchmarks "$@" --json "$out/$name.json" >"$out/$name.txt" 2>&1
  status=$?
  echo "$name: $((SECONDS - began)) s, exit $status"
  ((status == 0)) || tail -n 3 "$out/$name.txt"
  ((status > worst)) && worst=$status
  ran=$((ran + 1))
}

cell=(--contenders python cpp lstmcell ours)
with_cuda=(--contenders python cpp cuda lstmcell ours)
layer=(layer --device cuda --tf32 on --dtype float32 bfloat16 --contenders lstm ours)
case $device in
  cuda)
    part cell-cuda-tutorial cell --device cuda --seconds 0.5 --deadline 120
    part cell-cuda-graph cell --device cuda --protocol graph --seconds 0.2 --deadline 40 \
      "${cell[@]}" ours-again
    part cell-cuda-kernels cell --device cuda --protocol kernels --dtype float32 bfloat16 \
      --sizes 16,32,128 4096,1024,4096 "${with_cuda[@]}"
    part cell-cuda-memory cell --device cuda --protocol memory --sizes 16,32,128 64,512,1024 \
      "${with_cuda[@]}"
    part grid-cuda grid --device cuda --seconds 0.15 --rounds 7 --deadline 60 \
      "${with_cuda[@]}" ours-again
    part cell-cuda-dtypes cell --device cuda --protocol split --seconds 0.2 --deadline 30 \
      --dtype float32 bfloat16 float16 "${cell[@]}" --sizes 256,1024,2048 4096,1024,4096
    timed=("${layer[@]}" ours-again --seconds 0.3 --rounds 7)
    part layer-cuda "${timed[@]}" --deadline 45
    part layer-cuda-stream "${timed[@]}" --protocol stream --deadline 45
    part layer-cuda-graph "${timed[@]}" --protocol graph --deadline 40
    part grid-layer-cuda grid "${layer[@]}" --seconds 0.1 --rounds 5 --deadline 420
    ;;
  cpu)
    part grid-cpu grid --seconds 0.3 --rounds 7 --deadline 420 "${cell[@]}" ours-again
    part layer-cpu layer --seconds 1 --rounds 7 --contenders lstm ours-loop ours ours-again
    part layer-cpu-2 layer --threads 2 --seconds 1 --rounds 7 --contenders lstm ours ours-again
    part cell-cpu-memory cell --protocol memory --sizes 16,32,128 "${cell[@]}"
    ;;
  *) echo "the device is cuda or cpu, not '$device'" >&2 && exit 2 ;;
esac
part cell-cpu cell --seconds 0.5 --contenders python cpp compile lstmcell ours ours-again
part import import --rounds 5

((ran > 0)) || { echo "no part is named$only: see the names in benchmarks/run_all.sh" >&2 && exit 2; }
echo
"$python" -m benchmarks targets "$out"/*.json
exit "$worst"
