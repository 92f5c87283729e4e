#!/usr/bin/env bash
# The demo runs to its end, three times (a pipe that breaks breaks now and then), says what it is
# there to say, and fits one screen.
set -uo pipefail
gqac=${GQAC:-build/release/gqac}
cd "${GQAC_SOURCE_DIR:-$(dirname "${BASH_SOURCE[0]}")/../..}" || exit 1
# Reason of the skip: what is tested is the script. Every verb it calls runs under the sanitizers in
# tests of its own, and three runs of its 202 plans of `equiv` take minutes there.
if [ "${GQAC_SANITIZED:-0}" = 1 ]; then
  echo "the script is tested with the release tool; its verbs have sanitizer tests of their own"
  exit 77
fi
passed=0 failed=0
expect() { # what, in the output
  if grep -qF -- "$1" <<<"$out"; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "the demo does not say: $1"
  fi
}
for run in 1 2 3; do
  out=$(bash tools/demo.sh "$gqac" 2>&1)
  code=$?
  expect "the two texts are equal, byte for byte"
  expect "--kv contiguous:   51 tokens computed; first new token after"
  expect "--kv off:        1173 tokens computed; first new token after"
  expect "logits: the largest difference, relative to the largest logit, is 1"
  expect "1500 tokens were reused and 1500 computed; of 1536000 logits and cached values, none has other bits"
  expect "times as fast (expected: 2.00 by the number of tokens, 1.4"
  expect "/gqac chat models/tiny-gqa"
  expect "equal: 0 differing values"
  if [ "$(wc -l <<<"$out")" -le 32 ] && [ "$(wc -L <<<"$out")" -le 120 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "the demo is $(wc -l <<<"$out") lines of up to $(wc -L <<<"$out") columns"
  fi
  if [ $code -ne 0 ]; then
    failed=$((failed + 1))
    echo "run $run of the demo ended with $code"
    tail -n 5 <<<"$out"
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
