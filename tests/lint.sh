#!/usr/bin/env bash
# Checks the form of the sources: clang-format, clang-tidy, ruff and shellcheck.
#
#   tests/lint.sh [--all] [--fix] [--build=BUILD]
#
# Checks the files that differ from the branch main, or on main itself those of the last commit;
# --all checks every file. clang-tidy needs BUILD/compile_commands.json (BUILD: build/release) and
# reads at most 8 changed sources unless --all is given. ruff comes from PyPI into
# BUILD/lint. --fix lets clang-format and ruff mend what they can. Exit status: 0 nothing found, 1
# findings, 2 usage. What cannot be checked is named.
set -euo pipefail
cd "$(dirname "$0")/.."

all=false
fix=false
build=build/release
for option in "$@"; do
  case "$option" in
    --all) all=true ;;
    --fix) fix=true ;;
    --build=*) build=${option#--build=} ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done

# The tracked files to check.
list() {
  local base
  if $all; then
    git ls-files
    return
  fi
  base=$(git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
  if [ "$base" = "$(git rev-parse HEAD)" ]; then base=$(git rev-parse -q --verify HEAD~1 || echo HEAD); fi
  git diff --name-only --diff-filter=d "$base"
  git ls-files --others --exclude-standard
}
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  echo "lint: no git checkout, nothing was checked"
  exit 0
fi
mapfile -t files < <(list | sort -u)
select_files() { printf '%s\n' "${files[@]}" | grep -E "$1" || true; }
mapfile -t cpp < <(select_files '\.(cc|h|cu|cuh|inc)$')
mapfile -t sources < <(select_files '^(server|model|client)/.*\.cc$')
mapfile -t python < <(select_files '\.pyi?$')
mapfile -t shell < <(for file in "${files[@]}"; do
  [ -f "$file" ] && head -n 1 "$file" | grep -qE '^#!.*\b(ba)?sh\b' && echo "$file"
done || true)

found=0
skipped=()
check() { # NAME COMMAND...
  local name=$1
  shift
  "$@" || { found=1; echo "lint: $name has findings" >&2; }
}

if [ ${#cpp[@]} -gt 0 ]; then
  # Other versions lay out some lines differently.
  if ! clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    skipped+=("clang-format: version 14 is needed")
  elif $fix; then
    clang-format -i "${cpp[@]}"
  else
    check clang-format clang-format --dry-run --Werror "${cpp[@]}"
  fi
fi

if [ ${#sources[@]} -gt 0 ]; then
  if ! command -v clang-tidy >/dev/null; then
    skipped+=("clang-tidy: not installed")
  elif [ ! -f "$build/compile_commands.json" ]; then
    skipped+=("clang-tidy: $build has no compile_commands.json")
  else
    if ! $all && [ ${#sources[@]} -gt 8 ]; then
      skipped+=("clang-tidy: $((${#sources[@]} - 8)) of ${#sources[@]} sources (--all reads them)")
      sources=("${sources[@]:0:8}")
    fi
    tidy() {
      printf '%s\n' "${sources[@]}" |
        xargs -P "$(nproc)" -n 4 clang-tidy --quiet --warnings-as-errors='*' -p "$build" \
          --extra-arg=-Wno-unknown-warning-option 2>/dev/null
    }
    check clang-tidy tidy
  fi
fi

if [ ${#python[@]} -gt 0 ]; then
  # shellcheck disable=SC2016 # Python's
  if python3 -B -c 'import pathlib, sys
sys.path.insert(0, "tests/support")
import in_venv
sys.exit(0 if in_venv.make(pathlib.Path(sys.argv[1]), pathlib.Path("tests/lint.txt")) else 1)' \
      "$build/lint"; then
    ruff=("$build/lint/bin/ruff" check --quiet --no-cache)
    if $fix; then ruff+=(--fix); fi
    check ruff "${ruff[@]}" "${python[@]}"
  else
    skipped+=("ruff: not installed")
  fi
fi

if [ ${#shell[@]} -gt 0 ]; then
  if command -v shellcheck >/dev/null; then
    check shellcheck shellcheck --severity=warning "${shell[@]}"
  else
    skipped+=("shellcheck: not installed")
  fi
fi

for reason in "${skipped[@]}"; do echo "lint: skipped $reason"; done
echo "lint: ${#cpp[@]} C++ files, ${#python[@]} Python files, ${#shell[@]} scripts:" \
  "$([ $found = 0 ] && echo 'nothing found' || echo 'see the findings above')"
exit $found
