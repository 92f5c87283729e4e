#!/usr/bin/env bash
# A wheel in a fresh environment: its size and README's Python lines; the time of the import is printed.
#
#   wheel.sh build/dist/gqac-*.whl
set -euo pipefail
wheel=$(realpath "$1")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
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
small() { [ "$(stat -c %s "$wheel")" -lt 6000000 ]; }
readme() {
  sed -n '/^```python$/,/^```$/p' README.md | grep -v '^```' >"$work/readme.txt"
  ln -sfn "$PWD/models" "$work/models"
  (cd "$work" && "$work/venv/bin/python" -m doctest readme.txt)
}
import_time() { # the best of five
  "$work/venv/bin/python" -c '
import subprocess, sys
code = "import time; t = time.perf_counter(); import gqac; print(time.perf_counter() - t)"
best = min(float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
           for _ in range(5))
print(f"{best * 1e3:.0f} ms")'
}
check "the wheel has 6 MB or more" small
check "README's Python lines" readme
echo "import: $(import_time); size: $(stat -c %s "$wheel") bytes"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
