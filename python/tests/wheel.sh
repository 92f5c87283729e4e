#!/usr/bin/env bash
# A wheel in a fresh environment of python3, or of the interpreter that PYTHON names: its size, README's
# Python lines and the time of the import.
#
#   wheel.sh build/dist/gqac-*.whl
set -euo pipefail
wheel=$(realpath "$1")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check "$wheel"
unset GQAC_LIBRARY PYTHONPATH
passed=0 failed=0
check() { # WHAT COMMAND...
  local what=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    echo "FAIL $what"
    failed=$((failed + 1))
  fi
}
size=$(stat -c %s "$wheel")
small() { [ "$size" -lt 6000000 ]; }
readme() {
  sed -n '/^```python$/,/^```$/p' README.md | grep -v '^```' >"$work/readme.txt"
  ln -sfn "$PWD/models" "$work/models"
  (cd "$work" && "$work/venv/bin/python" -m doctest readme.txt)
}
took=$("$work/venv/bin/python" python/tests/import_time.py)
fast() { [ "$took" -lt 100 ]; }
check "the wheel has 6 MB or more" small
check "README's Python lines" readme
check "the import takes 100 ms or more besides NumPy" fast
echo "$("$work/venv/bin/python" -V): import: $took ms besides NumPy; size: $size bytes"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
