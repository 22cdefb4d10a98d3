#!/bin/sh
# Lets clang's CUDA driver use the fatbinary of CUDA 13, which no longer takes clang's options:
#   -image=profile=sm_90,file=F       becomes  --image3=kind=elf,sm=90,file=F
#   -image=profile=compute_90,file=F  becomes  --image3=kind=ptx,sm=90,file=F
# and adds two options:
#   --assemble=sm_NN   machine code for an architecture that clang does not know, from the PTX
#   --drop=NAME        leaves out an image that only served to make another
# The release tool copies it into the bin folder of a toolkit, beside ptxas and fatbinary.nvidia.
set -eu

here=$(dirname "$0")
ptx='' later='' dropped=' '
for word in "$@"; do
  case $word in
    --assemble=*) later="$later ${word#--assemble=sm_}" ;;
    --drop=*) dropped="$dropped${word#--drop=} " ;;
  esac
done
count=$#
while [ "$count" -gt 0 ]; do
  word=$1
  shift
  count=$((count - 1))
  case $word in
    --assemble=* | --drop=*) continue ;;
    --image=profile=* | -image=profile=*)
      rest=${word#*profile=}
      name=${rest%%,*}
      file=${rest#*,file=}
      case $name in
        compute_*)
          kind=ptx
          ptx=$file
          ;;
        *) kind=elf ;;
      esac
      case $dropped in *" $name "*) continue ;; esac
      set -- "$@" "--image3=kind=$kind,sm=${name#*_},file=$file"
      ;;
    *) set -- "$@" "$word" ;;
  esac
done
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
for number in $later; do
  if [ -z "$ptx" ]; then
    echo "fatbinary: --assemble=sm_$number needs PTX, got none; keep one with --cuda-include-ptx" >&2
    exit 1
  fi
  "$here/ptxas" -O3 -arch="sm_$number" "$ptx" -o "$made/$number.cubin"
  set -- "$@" "--image3=kind=elf,sm=$number,file=$made/$number.cubin"
done
# CUDA 13's default compresses better, but only newer drivers can read it.
"$here/fatbinary.nvidia" --compress-mode=speed "$@"
