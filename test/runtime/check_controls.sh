#!/usr/bin/env bash
# Programs of the tests with a defect on purpose (test/controls.cmake) must fail: a test that passes
# all the same sees nothing.
set -euo pipefail
folder="$GQAC_BUILD_DIR/test/controls"
[ -d "$folder" ] || { echo "no controls in this build"; exit 77; }
passed=0 failed=0
for name in TOP_P_BOUNDARY PUBLISH_FAILED STALE_BLOCK STORE_DRAFTS ACCEPT_WRONG NO_REWIND OTHER_ROW \
    SCHED_ACCEPT_WRONG SCHED_NO_REWIND PARTIAL_CHARACTER TENSOR_FRAGMENT ATTEND_FRAGMENT \
    ATTEND_ALL_SEEN ATTEND_WARP_MAXIMUM; do
  if "$folder/$name.test" >/dev/null 2>&1; then
    echo "$name: the test does not see the defect"
    failed=$((failed + 1))
  else
    passed=$((passed + 1))
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
