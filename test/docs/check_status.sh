#!/usr/bin/env bash
# The status table of README.md is what tools/status.py writes today.
set -euo pipefail
python="$GQAC_SOURCE_DIR/build/venv/bin/python"
[ -x "$python" ] || { echo "no test environment: ./dev deps"; exit 77; }
"$python" "$GQAC_SOURCE_DIR/tools/status.py" "$GQAC" --check
