#!/usr/bin/env bash
# Compares the functions and types of libgqac.so with gqac.abi, the announced ones, by abidiff, and
# those of libgqac_remote.so, where it is built, with gqac_remote.abi.
#
#   check_abi.sh            fails on any difference
#   check_abi.sh --accept   writes the two files anew, which announces the difference, and the
#                           declarations of the Python package
set -euo pipefail
# Skipped where the comparison cannot be made or would say nothing of the interface: each call has
# its reason.
skip() { echo "skipped: $1"; exit 77; }
here=$(cd "$(dirname "$0")" && pwd)
build=${GQAC_BUILD_DIR:-$here/../../build/release}
libraries=(gqac)
[ ! -e "$build/libgqac_remote.so" ] || libraries+=(gqac_remote)
# The comparison is abidiff's.
command -v abidiff >/dev/null || skip "no abidiff; ./dev deps installs abigail-tools"
# A library with a sanitizer exports its run time's symbols, and has other sizes.
[ "${GQAC_SANITIZED:-0}" = 0 ] || skip "the run time of a sanitizer is part of this library"
# Sizes and alignments in the dump are those of one architecture.
[ "$(uname -m)" = x86_64 ] || skip "gqac.abi is that of x86-64"
# The dump is made of debug information, in which clang describes the same types otherwise.
grep -q '^CMAKE_C_COMPILER:.*\(gcc\|cc\)$' "$build/CMakeCache.txt" ||
  skip "gqac.abi is that of gcc, which describes types in its own way"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "${1:-}" = --accept ]; then
  for name in "${libraries[@]}"; do
    abidw --drop-private-types --headers-dir "$here/../../include" --exported-interfaces-only \
      --no-corpus-path --no-comp-dir-path --no-elf-needed "$build/lib$name.so" >"$here/$name.abi"
    echo "written: test/abi/$name.abi"
  done
  "$here/../../build/venv/bin/python" "$here/../../tools/make_python_declarations.py"
  echo "written: python/gqac/_declarations.py"
  exit 0
fi

passed=0 failed=0
check() { # WHAT COMMAND...
  local what=$1
  shift
  if "$@" >"$work/said" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL $what"
    cat "$work/said"
  fi
}
same() { # DUMP DUMP|LIBRARY
  abidiff --suppressions "$here/private.abignore" "$1" "$2"
}
differs() { # SCRIPT of sed, after which abidiff must report a difference (bit 4 of its exit code)
  local code=0
  sed "$1" "$here/gqac.abi" >"$work/gqac.abi"
  ! cmp -s "$here/gqac.abi" "$work/gqac.abi" || return 1
  same "$work/gqac.abi" "$here/gqac.abi" || code=$?
  [ $((code & 4)) != 0 ]
}
foreign() { # NAME: exported symbols that are not ours
  ! nm -D --defined-only "$build/lib$1.so" | awk '{print $3}' | grep -v "^$1_.*@@${1^^}_0\$" |
    grep -vx "${1^^}_0"
}

for name in "${libraries[@]}"; do
  check "the interface is not the announced one (docs/c-api.md tells how to announce a change)" \
    same "$here/$name.abi" "$build/lib$name.so"
  check "lib$name.so exports other symbols than ${name}_*" foreign "$name"
  check "the soname is not lib$name.so.0" \
    grep -q "soname: \[lib$name.so.0\]" <(readelf -d "$build/lib$name.so")
done
# What the comparison must see.
check "a struct of another size is not seen" \
  differs "s/\(name='gqac_memory' size-in-bits='\)[0-9]*/\164/"
check "another value of an enum is not seen" differs "s/\('GQAC_EMIT_ONNX' value='\)2/\17/"
check "a new function is not seen" differs "/elf-symbol name='gqac_version'/d"
check "a missing function is not seen" \
  differs "s/\(.*elf-symbol name='gqac_version\)\('.*\)/&\n\1_2\2/"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
