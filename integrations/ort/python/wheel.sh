#!/usr/bin/env bash
# The wheel: its size and, with the onnxruntime of the tests and the wheel of gqac that lies beside it, that
# the lines of docs/onnxruntime.md print what it shows.
#
#   wheel.sh build/dist/onnxruntime_ep_gqac-*.whl
set -euo pipefail
wheel=$(realpath "$1")
cd "$(dirname "$0")/../../.."
size=$(stat -c %s "$wheel")
echo "size: $size bytes"
[ "$size" -lt 6000000 ] || { echo "FAIL the wheel has 6 MB or more"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build/venv/bin/pip install -q --disable-pip-version-check --no-deps --target "$work/site" "$wheel" \
  "$(dirname "$wheel")"/gqac-*.whl
GQAC_ORT_SITE="$work/site" GQAC="${GQAC:-$work/site}" \
  build/venv/bin/python test/python/test_ort_plugin.py test_page
