#!/usr/bin/env bash
# pytest and mypy on the Python package, with the library that GQAC_LIBRARY names.
set -euo pipefail
cd "$(dirname "$0")/../.."
# A library with a sanitizer only loads into a program that has its run time, which Python lacks.
if [ "${GQAC_SANITIZED:-0}" != 0 ]; then
  echo "skipped: Python lacks the run time of a sanitizer; python/tests/threads.py runs it under TSan"
  exit 77
fi
export PYTHONPATH="$PWD/python" PYTHONDONTWRITEBYTECODE=1 MYPY_CACHE_DIR=build/mypy
failed=0
"${GQAC_PYTHON:-build/venv/bin/python}" -m mypy --config-file python/pyproject.toml python/gqac python/examples || failed=1
"${GQAC_PYTHON:-build/venv/bin/python}" -m pytest -q -p no:cacheprovider python/tests "$@" | tee build/pytest.log || failed=1
if [ $failed = 1 ] && ! grep -qE ' [1-9][0-9]* failed' build/pytest.log; then
  echo "0 passed, 1 failed"
fi
exit $failed
