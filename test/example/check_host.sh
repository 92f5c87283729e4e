#!/usr/bin/env bash
# The loop of a server: every request ends as it should, and each answer has the bits of a run alone
# (host.c compares them).
set -euo pipefail
passed=0 failed=0
ends() { # REQUEST TEXT
  if grep -q "^request $1: .*$2" <<<"$out"; then
    passed=$((passed + 1))
  else
    echo "FAIL $model: request $1 does not end with '$2'"
    failed=$((failed + 1))
  fi
}
for model in llama qwen3.5; do
  out=$("$GQAC_BUILD_DIR/test/example_host" "$GQAC_SOURCE_DIR/test/models/$model/model.onnx") ||
    { echo "FAIL $model: exit $?"; failed=$((failed + 1)); }
  for request in 0 1 3 5; do
    ends $request "answered with the bits of a run alone"
  done
  ends 2 " 64 tokens computed, cancelled: its client disconnected"
  ends 4 " 32 tokens computed, refused: token id -1 "
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
