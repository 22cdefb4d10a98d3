#!/usr/bin/env bash
# Gathers the files of a release on GitHub, which has no folders, and their hashes.
#
#   gather_release.sh OUT PLATFORM=DIST ...
#   gather_release.sh release linux-x86_64=dist linux-aarch64=dist-linux-aarch64
#
# Conda packages have the same names on all platforms: those of a platform go into one archive, in
# the platform's folder. SHA256SUMS has a line for each file, and for each package in an archive.
# What goes into the release is what the manifests list; a file that is not as listed, or not listed, and
# two files of one name and other bytes are an error.
set -euo pipefail

fail() {
  printf 'error: %s\n' "$@" >&2
  exit 2
}

(($# >= 2)) || fail "needs OUT and PLATFORM=DIST, got: $*"
out=$1
shift
[[ -n $out ]] || fail "OUT is empty; name a folder"
[[ ! -e $out ]] || fail "$out is there already; remove it, or name another folder"
mkdir -p "$out"

take() { # FILE NAME
  if [[ -e $out/$2 ]]; then
    cmp --silent "$1" "$out/$2" && return
    fail "$1 would replace another file of the release, $2; build both from one commit"
  fi
  mkdir -p "$(dirname "$out/$2")"
  cp "$1" "$out/$2"
}

for argument; do
  platform=${argument%%=*} dist=${argument#*=}
  [[ $argument == *=* && -f $dist/manifest.json ]] ||
    fail "$argument: needs PLATFORM=DIST, where DIST holds a manifest.json"
  take "$dist/manifest.json" "manifest-$platform.json"
  take "$dist/report.html" "report-$platform.html"
done
# A file, because the exit code of what is read by <() would be lost.
list=$(mktemp)
trap 'rm -f "$list"' EXIT
python3 "$(dirname "$0")/../publishing/gathered.py" "$@" >"$list" || exit 2
while IFS= read -r -d '' platform && IFS= read -r -d '' dist && IFS= read -r -d '' path; do
  case $path in
  *.conda) take "$dist/$path" "$(basename "$(dirname "$path")")/${path##*/}" ;;
  *) take "$dist/$path" "${path##*/}" ;;
  esac
done <"$list"

cd "$out"
for folder in */; do
  [[ -d $folder ]] || continue # there are no conda packages
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "conda-${folder%/}.tar" "$folder"
done
sums=$(find . -type f -printf '%P\n' | sort | xargs -d '\n' sha256sum)
rm -rf ./*/
printf '%s\n' "$sums" >SHA256SUMS
