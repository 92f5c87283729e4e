#!/bin/bash
# The oracle by itself, on cases worked by hand: weights 1/2 and 3/4 come from scores that differ by
# ln 3.
set -eu
source=${GQAC_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${CC:-cc}" -std=c11 -O1 -Wall -Wextra -Werror -o "$work/oracle" \
    "$source/test/oracle/gqa_oracle.c" -lm

expect() { # case, wanted "y" rows
    got=$(printf '%s\n' "$1" | "$work/oracle" | sed -n '/^y$/,/^present_key$/p' | sed '1d;$d')
    if [ "$got" != "$2" ]; then
        printf 'for\n%s\nwanted\n%s\ngot\n%s\n' "$1" "$2" "$got"
        exit 1
    fi
}
ln3=1.0986122886681098
# B S P C Hq Hkv D rotary interleaved window scale softcap / past fresh / q k v (past_k past_v)
expect "1 2 0 2 1 1 2 0 0 -1 1 0  0 2  1 0 1 0  0 0 $ln3 0  1 1 3 3" $'1 1\n2.5 2.5'
expect "1 1 1 2 1 1 2 0 0 -1 1 0  1 1  1 0  $ln3 0  3 3  0 0  1 1" "2.5 2.5"
expect "1 1 1 2 1 1 2 0 0 1 1 0  1 1  1 0  $ln3 0  3 3  0 0  1 1" "3 3"
expect "1 2 0 2 2 1 1 0 0 -1 1 0  0 1  5 7 9 9  0 0  2 8" $'2\n2\n0\n0'
echo '4 passed, 0 failed'
