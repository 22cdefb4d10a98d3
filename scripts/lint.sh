#!/usr/bin/env bash
# Checks format, style, types, workflows and shell syntax; --fix first corrects what it can.
#
#   scripts/lint.sh [--fix]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONDONTWRITEBYTECODE

if [[ $* != "" && $* != --fix ]]; then
  echo "usage: scripts/lint.sh [--fix], got: $*" >&2
  exit 2
fi

bin=$(scripts/test_env.sh)/bin
# What a build copied into the package is not formatted here.
mapfile -t native < <(find . \( -path ./build -o -path ./dist -o -path './.*' \
  -o -path './*/engine/*' \) -prune -o \
  -type f -regex '.*\.\(h\|cpp\|cu\|c\)' -print | sort)
mapfile -t shell < <(find scripts .ci -type f \( -name '*.sh' -o -path '.ci/run' \) | sort)

logs=$(mktemp -d)
names=() jobs=()
trap 'kill "${jobs[@]}" 2>/dev/null || true; rm -rf "$logs"' EXIT
check() { # starts a check, beside those before it
  names+=("$1")
  shift
  "$@" >"$logs/${#names[@]}" 2>&1 &
  jobs+=($!)
}

if [[ $* == --fix ]]; then
  "$bin/ruff" check --fix --quiet . || true # the check below reports the remaining problems
  "$bin/ruff" format --quiet .
  "$bin/clang-format" -i "${native[@]}"
fi
check "ruff format" "$bin/ruff" format --check --quiet --diff .
check "ruff check" "$bin/ruff" check --quiet .
check "clang-format" "$bin/clang-format" --dry-run -Werror "${native[@]}"
# mypy sees the package as a wheel has it, with the engine inside.
. ./project.env
rm -rf build/mypy
mkdir -p "build/mypy/$PROJECT_PACKAGE/engine"
ln -s "$PWD/$PROJECT_PACKAGE"/*.py "$PWD/$PROJECT_PACKAGE/py.typed" "build/mypy/$PROJECT_PACKAGE"
for part in torchship/*; do
  # The templates are parts of other packages.
  [[ $part == torchship/templates ]] || ln -s "$PWD/$part" "build/mypy/$PROJECT_PACKAGE/engine"
done
checked=(-p "$PROJECT_PACKAGE")
if [[ -d measurements ]]; then # a project made from this one has neither
  checked+=(-p benchmarks -p measurements)
fi
MYPYPATH=build/mypy check "mypy --strict" "$bin/mypy" --no-error-summary "${checked[@]}"
# In a folder of its own, since two mypys must not write into one.
check "mypy --strict scripts" "$bin/mypy" --cache-dir build/mypy-scripts --strict \
  --no-error-summary scripts/*.py
check "workflows: schema" "$bin/check-jsonschema" --quiet \
  --builtin-schema vendor.github-workflows .github/workflows/*.yml
check "workflows: zizmor" "$bin/zizmor" --offline --quiet --no-progress .github
for script in "${shell[@]}"; do
  check "bash -n $script" bash -n "$script"
done

failed=()
for number in "${!names[@]}"; do
  echo "lint: ${names[number]}"
  wait "${jobs[number]}" || failed+=("${names[number]}")
  cat "$logs/$((number + 1))"
done
jobs=()

if ((${#failed[@]})); then
  printf 'lint: %s failed\n' "${failed[@]}" >&2
  echo "lint: scripts/lint.sh --fix corrects formats and some problems of style" >&2
  exit 1
fi
echo "lint: clean"
