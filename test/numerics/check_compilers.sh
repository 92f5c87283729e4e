#!/bin/sh
# Builds test_math_bits.c with every compiler and a range of flags and runs it: the digests in it are
# the same for all, and under flags that the contract forbids (the negative control) they are not.
# Usage: check_compilers.sh [SOURCE_DIR]; exit 77 when no compiler works.
set -eu
root=$(cd "${1:-$(dirname "$0")/../..}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ran=0
failed=0
for cc in gcc clang; do
    command -v "$cc" >/dev/null 2>&1 || continue
    echo 'int main(void) { return 0; }' >"$work/try.c"
    # the negative control: contraction, or where that happens to move no bit, everything unsafe
    control=-Ofast
    [ "$cc" = gcc ] && grep -qw fma /proc/cpuinfo 2>/dev/null &&
        control="-O2 -mfma -ffp-contract=fast"
    for flags in -O0 -O1 -O2 -O3 -Os "-O3 -march=native" "-O2 -mfma" \
        "-O3 -march=native -fno-math-errno -fno-trapping-math" "-O3 -march=x86-64-v4" "$control"; do
        "$cc" $flags -Werror "$work/try.c" -o "$work/try" 2>/dev/null && "$work/try" || continue
        # a level this machine cannot run is skipped, not failed
        case $flags in
        *x86-64-v4*) grep -qw avx512f /proc/cpuinfo 2>/dev/null || continue ;;
        *mfma*) grep -qw fma /proc/cpuinfo 2>/dev/null || continue ;;
        esac
        "$cc" -std=c11 -ffp-contract=off $flags -DGQAC_SOURCE_DIR="\"$root\"" -I"$root/src" \
            -I"$root/test" "$root/test/numerics/test_math_bits.c" "$root/test/unit.c" \
            -o "$work/bits" -lcunit -lm
        ran=1
        if [ "$flags" = "$control" ]; then
            if "$work/bits" >"$work/log"; then
                echo "$cc $flags: a difference went unnoticed" >&2
                failed=1
            fi
        elif "$work/bits" >"$work/log"; then
            echo "$cc $flags: same bits"
        else
            echo "$cc $flags: other bits" >&2
            cat "$work/log" >&2
            failed=1
        fi
    done
done
[ "$ran" = 1 ] || exit 77
echo "$((1 - failed)) passed, $failed failed"
exit "$failed"
